// Discrete Fourier transforms of powers of two, along one dimension of contiguous tensors seen as [outer, n, inner].
//
// Stockham's algorithm, as in N. K. Govindaraju et al., "High performance discrete Fourier transforms on graphics
// processors" (SC 2008): each pass reads elements n / RADIX apart, transforms RADIX of them in registers, and writes them
// where the next pass finds them in order, so that nothing is sorted. Neighbouring work-items read neighbours.

#ifndef RADIX
#define RADIX 2
#endif

static inline T times(T a, T b) { return (T)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }

// exp(2 pi i x), exact at multiples of 1/4.
static inline T turn(TR x) { return (T)(cospi(2 * x), sinpi(2 * x)); }

// a * i, or a * -i in a forward transform.
static inline T quarter(T a, TR sign) { return (T)(-sign * a.y, sign * a.x); }

static inline void transform_2(T *a, T *b) {
  const T sum = *a + *b;
  *b = *a - *b;
  *a = sum;
}

// Of v[0], v[step], v[2 * step] and v[3 * step], which come out in the order 0, 2, 1, 3.
static inline void transform_4(T *v, int step, TR sign) {
  transform_2(&v[0], &v[2 * step]);
  transform_2(&v[step], &v[3 * step]);
  v[3 * step] = quarter(v[3 * step], sign);
  transform_2(&v[0], &v[step]);
  transform_2(&v[2 * step], &v[3 * step]);
}

// The transform of RADIX values; coefficient k ends in v[REVERSED(k)], k with its bits in reverse.
#if RADIX == 2
#define REVERSED(k) (k)
static inline void transform(T *v, TR sign) { transform_2(&v[0], &v[1]); }
#elif RADIX == 4
#define REVERSED(k) ((k) >> 1 | ((k) & 1) << 1)
static inline void transform(T *v, TR sign) { transform_4(v, 1, sign); }
#else
#define REVERSED(k) ((k) >> 2 | ((k) & 2) | ((k) & 1) << 2)
static inline void transform(T *v, TR sign) {
  const TR half_root = (TR)LIT(0.7071067811865476);
  for (int k = 0; k < 4; k++) transform_2(&v[k], &v[k + 4]);
  v[5] = half_root * (v[5] + quarter(v[5], sign));
  v[6] = quarter(v[6], sign);
  v[7] = half_root * (quarter(v[7], sign) - v[7]);
  transform_4(v, 1, sign);
  transform_4(v + 4, 1, sign);
}
#endif

// A pass over transforms of `span` elements, which it makes transforms of span * RADIX. `sign` is -1 in a forward
// transform, and `scale` 1 in all passes but the last.
__kernel void fft_pass(__global const uchar *input, ulong input_offset, __global uchar *output, ulong output_offset,
                       long butterflies, long n, long inner, long span, TR sign, TR scale) {
  const long item = get_global_id(0);
  if (item >= butterflies) return;
  __global const T *from = (__global const T *)(input + input_offset);
  __global T *to = (__global T *)(output + output_offset);
  const long column = item % inner, rest = item / inner;
  const long step = n / RADIX, j = rest % step, row = rest / step * n;
  const long k = j % span;

  T v[RADIX];
  for (int r = 0; r < RADIX; r++) v[r] = from[(row + j + r * step) * inner + column];
  // Products of at most three roots, of which the powers of two are computed: longer ones would lose digits.
  const TR x = sign * (TR)k / (TR)(span * RADIX);
  T roots[RADIX];
  for (int r = 1; r < RADIX; r++) {
    const int top = r >= 4 ? 4 : r >= 2 ? 2 : 1;
    roots[r] = r == top ? turn(r * x) : times(roots[top], roots[r - top]);
    v[r] = times(v[r], roots[r]);
  }
  transform(v, sign);
  const long first = row + (j - k) * RADIX + k;
  for (int r = 0; r < RADIX; r++) to[(first + r * span) * inner + column] = v[REVERSED(r)] * scale;
}
