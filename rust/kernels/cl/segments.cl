// Where several tensors of one or more lists lie. They are in at most BUFFERS buffers, as small tensors share them. The
// table has to fit the 1024 bytes of arguments that every device takes, with what else a kernel needs: SEGMENTS tensors
// of SEGMENT_OPERANDS lists each. A group works on a chunk of one tensor.

// rust/ops/segments.rs writes the same struct.
typedef struct {
  ulong offsets[SEGMENTS][SEGMENT_OPERANDS];  // in bytes
  long counts[SEGMENTS];                      // elements
  long chunk;                                 // elements that a group takes
  uint ends[SEGMENTS];                        // groups up to the end of each tensor
  uchar buffers[SEGMENTS][SEGMENT_OPERANDS];
} Segments;

#define SEGMENT_BUFFERS                                                                                    \
  __global uchar *b0, __global uchar *b1, __global uchar *b2, __global uchar *b3, __global uchar *b4,      \
      __global uchar *b5, __global uchar *b6, __global uchar *b7

// This group's tensor `s`, its elements `n`, and of these the chunk from `start` to `end`.
#define SEGMENT_CHUNK(table, s, n, start, end)                                                             \
  __global uchar *const buffers[] = {b0, b1, b2, b3, b4, b5, b6, b7};                                      \
  const uint group = get_group_id(0);                                                                      \
  int s = 0;                                                                                               \
  while (group >= (table).ends[s]) s++;                                                                    \
  const long n = (table).counts[s];                                                                        \
  const long start = (long)(group - (s > 0 ? (table).ends[s - 1] : 0)) * (table).chunk;                    \
  const long end = min(n, start + (table).chunk)

// Where the tensor `s` of a list begins.
#define SEGMENT_START(table, s, operand) (buffers[(table).buffers[s][operand]] + (table).offsets[s][operand])
