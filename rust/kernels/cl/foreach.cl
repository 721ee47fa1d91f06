// A pointwise op on several tensors of a list in one launch. Follows pointwise.cl, whose switch it uses.
//
// The tensors of a launch lie in at most BUFFERS buffers, as small tensors share them; a table in the arguments says
// where. It has to fit the 1024 bytes that every device takes. A group computes CHUNK elements of one tensor.

#define SEGMENTS 16
#define BUFFERS 8
#define CHUNK 1024

#ifndef LSIZE
#define LSIZE 1
#endif

// rust/ops/foreach.rs writes the same struct. Operand 0 is the output.
typedef struct {
  T parameters[4];
  T numbers[SEGMENTS];                     // an input or the first parameter, for each tensor
  uint ends[SEGMENTS];                     // groups up to the end of each tensor
  uint counts[SEGMENTS];                   // its elements
  uint offsets[SEGMENTS][MAX_OPERANDS];    // in elements of the operand
  uchar buffers[SEGMENTS][MAX_OPERANDS];
  int dtypes[MAX_OPERANDS];
  int op;
  int sources;
  int has_parameters;  // whether numbers are the first parameter
} Table;

__kernel void foreach(Table launch, __global uchar *b0, __global uchar *b1, __global uchar *b2, __global uchar *b3,
                      __global uchar *b4, __global uchar *b5, __global uchar *b6, __global uchar *b7) {
  __global uchar *const buffers[BUFFERS] = {b0, b1, b2, b3, b4, b5, b6, b7};
  const uint group = get_group_id(0);
  int s = 0;
  while (group >= launch.ends[s]) s++;
  const long n = launch.counts[s], start = (long)(group - (s > 0 ? launch.ends[s - 1] : 0)) * CHUNK;
  const long end = min(n, start + CHUNK);
  const T number = launch.numbers[s], parameter = launch.has_parameters ? number : launch.parameters[0];
#define PLACE(k, DTYPE) (buffers[launch.buffers[s][k]] + (long)launch.offsets[s][k] * dtype_size(DTYPE))
  for (long first = start + get_local_id(0) * VEC; first < end; first += LSIZE * VEC) {
    TV a = C(0), b = C(0), c = C(0), d = C(0);
#define LOAD(k, DTYPE) load_dense(PLACE(k + 1, DTYPE), first, n, DTYPE, (SOURCES >> (2 * k)) & 3, number)
#if ARITY >= 1
    a = LOAD(0, DTYPE0);
#endif
#if ARITY >= 2
    b = LOAD(1, DTYPE1);
#endif
#if ARITY >= 3
    c = LOAD(2, DTYPE2);
#endif
#undef LOAD
    store_dense(PLACE(0, DTYPE_OUT), first, n, DTYPE_OUT,
                apply(OP, DTYPE_OUT, a, b, c, d, parameter, launch.parameters[1], launch.parameters[2],
                      launch.parameters[3]));
  }
}
