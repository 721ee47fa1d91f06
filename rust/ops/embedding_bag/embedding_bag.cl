// Bags of embeddings (CLASS_F and CLASS_D): the sum, mean or maximum of the rows of a matrix that each bag indexes.

// Values of at::native::EmbeddingBagMode.
#define EMBEDDING_BAG_SUM 0
#define EMBEDDING_BAG_MEAN 1
#define EMBEDDING_BAG_MAX 2

INLINE void store_index(__global uchar *p, long i, int dt, long index) {
  if (dt == DT_I64) ((__global long *)p)[i] = index;
  else ((__global int *)p)[i] = (int)index;
}

// Bag b holds indices[offsets[b]] and the indices up to the next bag, except those equal to `padding` if that is not
// negative. `scales` has a per-sample weight for each index, or is null. There may be one more offset than bags; it
// only has to be in range. Writes the bags, the number of rows of each (as `dtype1`), the bag of each index and, for
// the maximum, the row of each element. Rows of `weight` lie `step` elements apart; everything else is contiguous. A
// task is a vector of columns of one bag.
__kernel void embedding_bag(__global uchar *output, ulong output_offset, __global uchar *bag_size,
                            ulong bag_size_offset, __global uchar *offset2bag, ulong offset2bag_offset,
                            __global uchar *rows, ulong rows_offset, __global const uchar *weight, ulong weight_offset,
                            __global const uchar *indices, ulong indices_offset, __global const uchar *offsets,
                            ulong offsets_offset, __global const uchar *scales, ulong scales_offset,
                            __global uchar *faults, ulong faults_offset, int dtype0, int dtype1, int op, long bags,
                            long starts, long count, long columns, long embeddings, long step, long padding) {
  indices += indices_offset;
  offsets += offsets_offset;
  // A bag without columns is a task too.
  long strips = max((columns + VEC - 1) / VEC, 1l);
  if (get_global_id(0) == 0) {
    long start = load_index(offsets, 0, DTYPE1), stop = load_index(offsets, starts - 1, DTYPE1);
    if (start != 0) report_fault(faults + faults_offset, FAULT_EMBEDDING_BAG_FIRST, start, 0);
    if (stop > count) report_fault(faults + faults_offset, FAULT_EMBEDDING_BAG_LAST, stop, count);
  }
  ITEM_TASKS(bags * strips, first, last);
  for (long task = first; task < last; task++) {
    long bag = task / strips, column = task % strips * VEC;
    long begin = load_index(offsets, bag, DTYPE1);
    long end = bag + 1 < bags ? load_index(offsets, bag + 1, DTYPE1) : count;
    if (begin > end && begin <= count) report_fault(faults + faults_offset, FAULT_EMBEDDING_BAG_ORDER, end, begin);
    long taken = 0;
    TV sum = (TV)0;
    long top_rows[VEC];
    for (int l = 0; l < VEC; l++) top_rows[l] = 0;
    for (long i = max(begin, 0l); i < min(end, count); i++) {
      long index = load_index(indices, i, DTYPE1);
      if (padding >= 0 && index == padding) continue;
      if (index < 0 || index >= embeddings) {
        report_fault(faults + faults_offset, FAULT_EMBEDDING_BAG_INDEX, index, embeddings);
        continue;
      }
      TV row = load_part(weight + weight_offset + index * step * dtype_size(DTYPE0), column, columns, DTYPE0, 0);
      if (OP == EMBEDDING_BAG_SUM && scales) row *= load(scales + scales_offset, i, DTYPE0);
      if (OP == EMBEDDING_BAG_MAX) {
        TM better = taken == 0 ? (TM)-1 : (TM)(row > sum);
        sum = better ? row : sum;
        Lanes chosen;
        chosen.vector = better ? (TV)1 : (TV)0;
        for (int l = 0; l < VEC; l++) top_rows[l] = chosen.lanes[l] != 0 ? index : top_rows[l];
      } else {
        sum += row;
      }
      taken++;
    }
    if (OP == EMBEDDING_BAG_MEAN && taken > 0) sum /= (T)taken;
    store_part(output + output_offset + bag * columns * dtype_size(DTYPE0), column, columns, DTYPE0, sum);
    if (column == 0) {
      store_index(bag_size + bag_size_offset, bag, DTYPE1, taken);
      // Each index is in a bag, whatever the offsets are: the first bag has all indices before the second.
      for (long i = bag == 0 ? 0 : max(begin, 0l); i < min(end, count); i++) {
        store_index(offset2bag + offset2bag_offset, i, DTYPE1, bag);
      }
    }
    for (int l = 0; OP == EMBEDDING_BAG_MAX && l < VEC && column + l < columns; l++) {
      store_index(rows + rows_offset, bag * columns + column + l, DTYPE1, top_rows[l]);
    }
  }
}
