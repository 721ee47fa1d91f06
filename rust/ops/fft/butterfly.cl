// Transforms of 2 to 8 values in registers, in place and in order. `direction` is 1 in a forward transform, whose roots
// of unity are exp(-2 pi i / n), and -1 in an inverse one. Odd radices use sums and differences of the values k and
// n - k, as in C. Temperton, "Self-sorting mixed-radix fast Fourier transforms" (Journal of Computational Physics 52,
// 1983).

static inline INLINED_ON_GPUS T times(T a, T b) { return (T)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }

// a * -i, or a * i in an inverse transform.
static inline INLINED_ON_GPUS T quarter(T a, TR direction) { return (T)(direction * a.y, -direction * a.x); }

static inline INLINED_ON_GPUS void transform_2(T *v) {
  const T difference = v[0] - v[1];
  v[0] += v[1];
  v[1] = difference;
}

static inline INLINED_ON_GPUS void transform_3(T *v, TR direction) {
  const T sum = v[1] + v[2], turned = quarter((v[1] - v[2]) * (TR)LIT(0.86602540378443865), direction);
  const T middle = v[0] - sum * (TR)LIT(0.5);
  v[0] += sum;
  v[1] = middle + turned;
  v[2] = middle - turned;
}

static inline INLINED_ON_GPUS void transform_4(T *v, TR direction) {
  const T even = v[0] + v[2], odd = v[1] + v[3];
  const T difference = v[0] - v[2], turned = quarter(v[1] - v[3], direction);
  v[0] = even + odd;
  v[1] = difference + turned;
  v[2] = even - odd;
  v[3] = difference - turned;
}

static inline INLINED_ON_GPUS void transform_5(T *v, TR direction) {
  const TR c1 = LIT(0.30901699437494742), c2 = -LIT(0.80901699437494742);
  const TR s1 = LIT(0.95105651629515357), s2 = LIT(0.58778525229247313);
  const T sum1 = v[1] + v[4], sum2 = v[2] + v[3], difference1 = v[1] - v[4], difference2 = v[2] - v[3];
  const T even1 = v[0] + sum1 * c1 + sum2 * c2, even2 = v[0] + sum1 * c2 + sum2 * c1;
  const T odd1 = quarter(difference1 * s1 + difference2 * s2, direction);
  const T odd2 = quarter(difference1 * s2 - difference2 * s1, direction);
  v[0] += sum1 + sum2;
  v[1] = even1 + odd1;
  v[2] = even2 + odd2;
  v[3] = even2 - odd2;
  v[4] = even1 - odd1;
}

static inline INLINED_ON_GPUS void transform_7(T *v, TR direction) {
  const TR c1 = LIT(0.62348980185873353), c2 = -LIT(0.22252093395631440), c3 = -LIT(0.90096886790241913);
  const TR s1 = LIT(0.78183148246802981), s2 = LIT(0.97492791218182361), s3 = LIT(0.43388373911755812);
  const T sum1 = v[1] + v[6], sum2 = v[2] + v[5], sum3 = v[3] + v[4];
  const T difference1 = v[1] - v[6], difference2 = v[2] - v[5], difference3 = v[3] - v[4];
  const T even1 = v[0] + sum1 * c1 + sum2 * c2 + sum3 * c3, even2 = v[0] + sum1 * c2 + sum2 * c3 + sum3 * c1;
  const T even3 = v[0] + sum1 * c3 + sum2 * c1 + sum3 * c2;
  const T odd1 = quarter(difference1 * s1 + difference2 * s2 + difference3 * s3, direction);
  const T odd2 = quarter(difference1 * s2 - difference2 * s3 - difference3 * s1, direction);
  const T odd3 = quarter(difference1 * s3 - difference2 * s1 + difference3 * s2, direction);
  v[0] += sum1 + sum2 + sum3;
  v[1] = even1 + odd1;
  v[2] = even2 + odd2;
  v[3] = even3 + odd3;
  v[4] = even3 - odd3;
  v[5] = even2 - odd2;
  v[6] = even1 - odd1;
}

static inline INLINED_ON_GPUS void transform_8(T *v, TR direction) {
  const TR half_root = (TR)LIT(0.70710678118654752);
  T even[4], odd[4];
  UNROLL for (int k = 0; k < 4; k++) {
    even[k] = v[k] + v[k + 4];
    odd[k] = v[k] - v[k + 4];
  }
  odd[1] = (odd[1] + quarter(odd[1], direction)) * half_root;
  odd[2] = quarter(odd[2], direction);
  odd[3] = (quarter(odd[3], direction) - odd[3]) * half_root;
  transform_4(even, direction);
  transform_4(odd, direction);
  UNROLL for (int k = 0; k < 4; k++) {
    v[2 * k] = even[k];
    v[2 * k + 1] = odd[k];
  }
}

// Values that a work-item holds: as many transforms of `radix` of them as fit.
#define VALUES 8

static inline INLINED_ON_GPUS void transform(T *v, uint radix, TR direction) {
  switch (radix) {
    case 2: UNROLL for (int i = 0; i < 4; i++) transform_2(v + 2 * i); break;
    case 3: UNROLL for (int i = 0; i < 2; i++) transform_3(v + 3 * i, direction); break;
    case 4: UNROLL for (int i = 0; i < 2; i++) transform_4(v + 4 * i, direction); break;
    case 5: transform_5(v, direction); break;
    case 7: transform_7(v, direction); break;
    case 8: transform_8(v, direction); break;
  }
}
