// Locations of the tensors of one or more lists: TENSORS tensors of each of TENSOR_LISTS lists, in at most BUFFERS
// buffers, as small tensors share buffers. The table and the kernel's other arguments must fit in the 1024 bytes that
// every device supports. A group works on a chunk of one tensor. If the first tensor has 0 elements, no group works on
// it: its buffers hold data that all groups read (SHARED_START).

// rust/ops/core/multi_tensor.rs writes this struct.
typedef struct {
  ulong offsets[TENSORS][TENSOR_LISTS];  // in bytes
  long counts[TENSORS];  // elements
  long chunk;  // elements that a group takes
  uint ends[TENSORS];  // number of groups up to the end of each tensor
  uchar buffers[TENSORS][TENSOR_LISTS];
} MultiTensorTable;

#define MULTI_TENSOR_ARGUMENTS                                                                            \
  MultiTensorTable table, __global uchar *b0, __global uchar *b1, __global uchar *b2, __global uchar *b3, \
      __global uchar *b4, __global uchar *b5, __global uchar *b6, __global uchar *b7

// This group's tensor `s`, its number of elements `n`, and the group's chunk from `start` to `end`; and the start of
// tensor `s` of a list.
#ifdef IS_CPU
#define TENSOR_CHUNK(table, s, n, start, end)                                           \
  __global uchar *const buffers[] = {b0, b1, b2, b3, b4, b5, b6, b7};                   \
  const uint group = get_group_id(0);                                                   \
  int s = 0;                                                                            \
  while (group >= (table).ends[s]) s++;                                                 \
  const long n = (table).counts[s];                                                     \
  const long start = (long)(group - (s > 0 ? (table).ends[s - 1] : 0)) * (table).chunk; \
  const long end = min(n, start + (table).chunk)
#define TENSOR_START(table, s, operand) (buffers[(table).buffers[s][operand]] + (table).offsets[s][operand])
#define SHARED_START(table, operand) TENSOR_START(table, 0, operand)
#define TENSOR_SCALAR(scalars, s) (scalars)[s]
#else
// A GPU's compiler copies a struct argument, or an array, to each work-item's private memory if an index into it is not
// a constant. Here each index is a constant: comparisons, with the same result for all items of a group, select the
// fields of the tensor.
#define TENSOR_CHUNK(table, s, n, start, end)                                \
  const uint group = get_group_id(0);                                        \
  int s = 0;                                                                 \
  uint before = 0;                                                           \
  long n = (table).counts[0];                                                \
  ulong offsets[TENSOR_LISTS];                                               \
  uchar buffer_indices[TENSOR_LISTS];                                        \
  UNROLL for (int k = 0; k < TENSOR_LISTS; k++) {                            \
    offsets[k] = (table).offsets[0][k];                                      \
    buffer_indices[k] = (table).buffers[0][k];                               \
  }                                                                          \
  UNROLL for (int i = 1; i < TENSORS && group >= (table).ends[i - 1]; i++) { \
    s = i;                                                                   \
    before = (table).ends[i - 1];                                            \
    n = (table).counts[i];                                                   \
    UNROLL for (int k = 0; k < TENSOR_LISTS; k++) {                          \
      offsets[k] = (table).offsets[i][k];                                    \
      buffer_indices[k] = (table).buffers[i][k];                             \
    }                                                                        \
  }                                                                          \
  const long start = (long)(group - before) * (table).chunk, end = min(n, start + (table).chunk)
#define BUFFER_AT(index) \
  ((index) == 0   ? b0   \
   : (index) == 1 ? b1   \
   : (index) == 2 ? b2   \
   : (index) == 3 ? b3   \
   : (index) == 4 ? b4   \
   : (index) == 5 ? b5   \
   : (index) == 6 ? b6   \
                  : b7)
#define TENSOR_START(table, s, operand) (BUFFER_AT(buffer_indices[operand]) + offsets[operand])
#define SHARED_START(table, operand) (BUFFER_AT((table).buffers[0][operand]) + (table).offsets[0][operand])

INLINE INLINED_ON_GPUS T tensor_scalar(const T *scalars, int s) {
  T scalar = scalars[0];
  UNROLL for (int i = 1; i < TENSORS; i++) scalar = s == i ? scalars[i] : scalar;
  return scalar;
}
#define TENSOR_SCALAR(scalars, s) tensor_scalar(scalars, s)
#endif
