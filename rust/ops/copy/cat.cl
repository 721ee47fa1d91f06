// Copies several tensors into one, as in concatenations: a separate launch for each would take longer than most copies.
// The unit is a word of WIDTH bytes, the widest that divides all parts. Comes after multi_tensor.cl in the source; its
// table has the parts, with their counts in words.

#ifndef WIDTH
#define WIDTH 4
#endif
// Words of a vector on CPUs.
#if WIDTH == 8
#define VEC 8
#define VLOAD_WORDS vload8
#define VSTORE_WORDS vstore8
#else
#define VEC 16
#define VLOAD_WORDS vload16
#define VSTORE_WORDS vstore16
#endif

#if WIDTH == 1
typedef uchar Word;
#elif WIDTH == 2
typedef ushort Word;
#elif WIDTH == 4
typedef uint Word;
#elif WIDTH == 8
typedef ulong Word;
#else
typedef ulong2 Word;
#endif

// Destinations of parts, and their layout: rows of `run` adjacent words. Strides and offsets are in bytes.
typedef struct {
  long to[16];
  long to_stride[16];
  long from_stride[16];
  int run[16];
} CatRows;
SHARED(CatRows, 448);

#ifdef IS_CPU
#define OF_PART(name, field) const long name = rows.field[s]
#else
// Indices of struct arguments are constants: see multi_tensor.cl.
#define OF_PART(name, field) \
  long name = rows.field[0]; \
  UNROLL for (int i = 1; i < TENSORS; i++) name = s == i ? rows.field[i] : name
#endif

__kernel GROUPS_OF(LSIZE) void cat(__global uchar *dst, ulong dst_offset, CatRows rows, MULTI_TENSOR_ARGUMENTS) {
  TENSOR_CHUNK(table, s, n, start, end);
  OF_PART(to_start, to);
  OF_PART(to_stride, to_stride);
  OF_PART(from_stride, from_stride);
  OF_PART(run, run);
  __global uchar *const to = dst + dst_offset + to_start;
  __global const uchar *const from = TENSOR_START(table, s, 0);
#ifdef IS_CPU
  if (run == 1) {
    for (long row = start; row < end; row++)
      *(__global Word *)(to + row * to_stride) = *(__global const Word *)(from + row * from_stride);
    return;
  }
  long row = start / run, column = start - row * run;
  for (long first = start; first < end; row++, column = 0) {
    const long count = min(run - column, end - first);
    __global Word *out = (__global Word *)(to + row * to_stride) + column;
    __global const Word *in = (__global const Word *)(from + row * from_stride) + column;
    long i = 0;
    // Vectors of 64 bytes, or less for words of 1 and 2 bytes.
    for (; i + VEC <= count; i += VEC) VSTORE_WORDS(VLOAD_WORDS(0, in + i), 0, out + i);
    if (i < count && count > VEC) {
      // The last vector overlaps the previous one.
      VSTORE_WORDS(VLOAD_WORDS(0, in + count - VEC), 0, out + count - VEC);
    } else {
      for (; i < count; i++) out[i] = in[i];
    }
    first += count;
  }
#else
  for (uint i = (uint)start + get_local_id(0); i < (uint)end; i += LSIZE) {
    const uint row = i / (uint)run, column = i - row * (uint)run;
    ((__global Word *)(to + row * to_stride))[column] = ((__global const Word *)(from + row * from_stride))[column];
  }
#endif
}
