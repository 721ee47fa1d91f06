// A kernel reports bad input in a record of four longs: a kind, a value, its bound and the dimension of an index. The
// host turns it into an error when it next waits for the stream. rust/runtime/faults.rs has the kinds and their
// messages.

#define FAULT_TARGET 1
#define FAULT_INPUT_PROBABILITY 2
#define FAULT_TARGET_PROBABILITY 3
#define FAULT_EMBEDDING_BAG_INDEX 4
#define FAULT_EMBEDDING_BAG_FIRST 5
#define FAULT_EMBEDDING_BAG_LAST 6
#define FAULT_EMBEDDING_BAG_ORDER 7
#define FAULT_PROBABILITY 8
#define FAULT_MARGIN_TARGET 9
#define FAULT_POISSON_RATE 10
#define FAULT_ASSERTION 11
#define FAULT_PIVOT 12
#define FAULT_INDEX 13

// The first report is kept. Reports of racing work-items differ only in their value.
static inline void report_fault(__global uchar *faults, int kind, long value, long bound) {
  __global long *record = (__global long *)faults;
  if (record[0] != 0) return;
  record[1] = value;
  record[2] = bound;
  record[0] = kind;
}
