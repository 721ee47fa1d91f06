// Work distribution of kernels whose results are neighbouring columns.
//
// On CPUs an item computes whole tasks (a strip of columns of one row or split), one after the other. On GPUs an item
// computes one task of one vector, or of one lane, as geometry.rs decides: neighbouring items read neighbouring
// addresses. If columns are too few for the device, `parts` items of a group share each task: item `part` reads its
// rows part, part + parts, ..., and their results are reduced in local memory. LSIZE / parts tasks are neighbours in a
// group, and the parts of a task are `apart` items from one another. Short rows, whose elements (and not results) are
// neighbours (`is_row`), are arranged in the other order: the parts of a row are neighbouring items.

#if LSIZE > 1
// Tasks [first, last) of this item: one, which may be past the end and then has no columns.
#define COLUMN_TASKS(tasks, parts, is_row, first, last)                                  \
  const int side = LSIZE / (parts), item = get_local_id(0), apart = (is_row) ? 1 : side; \
  const int part = (is_row) ? item % (parts) : item / side;                              \
  const long first = get_group_id(0) * (long)side + ((is_row) ? item / (parts) : item % side), last = first + 1
#define IS_TASK(task, tasks) ((task) < (tasks))
#define PART part
#define PARTS parts
// Runs JOIN, which merges the result of item `other` into that of `item`, until the first part has the total; then all
// items may read it at `item - part * apart`. Every item of the group must reach this.
#define FOLD_PARTS(JOIN)                                              \
  for (int half_parts = parts / 2; half_parts > 0; half_parts /= 2) { \
    barrier(CLK_LOCAL_MEM_FENCE);                                     \
    if (part < half_parts) {                                          \
      const int other = item + half_parts * apart;                    \
      JOIN;                                                           \
    }                                                                 \
  }                                                                   \
  barrier(CLK_LOCAL_MEM_FENCE)
#else
#define COLUMN_TASKS(tasks, parts, is_row, first, last) ITEM_TASKS(tasks, first, last)
#define IS_TASK(task, tasks) true
#define PART 0
#define PARTS 1
#endif
