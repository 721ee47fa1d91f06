// The first k elements of each row in sorted order, without sorting the row.
//
// A work-item keeps the best k elements of its piece of a row in a heap whose root is the worst of them. Most elements
// do not beat the root, and a vector of them is rejected with one comparison: of n elements in random order about
// k * ln(n / k) enter the heap, so a pass costs little more than reading the row. Pieces of a long row are merged by
// running the same kernel over the elements that they kept.

#if defined(IS_CPU) && !defined(IS_COMPLEX)

// Returns true if element (b, j) goes before (a, i) in a stable sort.
static inline bool goes_before(T b, long j, T a, long i, int descending) {
  return overtakes(b, a, descending) || (!overtakes(a, b, descending) && j < i);
}

// Lets (value, index) sink from the root of a heap of `count` elements.
static inline void sink(__global T *values, __global long *indices, long count, T value, long index, int descending) {
  long at = 0;
  for (long child = 1; child < count; child = 2 * at + 1) {
    long other = child + 1;
    if (other < count && goes_before(values[child], indices[child], values[other], indices[other], descending))
      child = other;
    if (!goes_before(value, index, values[child], indices[child], descending)) break;
    values[at] = values[child];
    indices[at] = indices[child];
    at = child;
  }
  values[at] = value;
  indices[at] = index;
}

// Lets (value, index) rise from the end of a heap of `count` elements.
static inline void rise(__global T *values, __global long *indices, long count, T value, long index, int descending) {
  long at = count;
  while (at > 0) {
    long parent = (at - 1) / 2;
    if (!goes_before(values[parent], indices[parent], value, index, descending)) break;
    values[at] = values[parent];
    indices[at] = indices[parent];
    at = parent;
  }
  values[at] = value;
  indices[at] = index;
}

// Returns true if any of VEC elements may overtake `root`: NaN compares false, so it is included.
static inline bool any_overtakes(TV v, T root, int descending) {
#if VEC == 1
  return overtakes(v, root, descending);
#else
  return any(descending ? !(v <= root) : !(v >= root));
#endif
}

// A row has `chunks` pieces of `chunk` elements; the last one also has the rest. Each piece keeps `k`. `in_indices`
// has the indices of the elements of `input`, and is null for the first pass.
__kernel void topk_rows(__global uchar *values, ulong values_offset, __global uchar *indices, ulong indices_offset,
                        __global const uchar *input, ulong input_offset, __global const uchar *in_indices,
                        ulong in_indices_offset, int dtype0, long length, long chunk, long chunks, long k,
                        int descending) {
  long row_number = get_global_id(0) / chunks, piece = get_global_id(0) % chunks;
  long begin = piece * chunk, end = piece + 1 == chunks ? length : begin + chunk;
  __global const uchar *row = input + input_offset + row_number * length * dtype_size(DTYPE0);
  __global const long *from =
      in_indices ? (__global const long *)(in_indices + in_indices_offset) + row_number * length : 0;
  __global T *heap = (__global T *)(values + values_offset) + get_global_id(0) * k;
  __global long *heap_indices = (__global long *)(indices + indices_offset) + get_global_id(0) * k;

  long i = begin;
  for (; i < begin + k; i++) rise(heap, heap_indices, i - begin, load(row, i, DTYPE0), from ? from[i] : i, descending);
  while (i < end) {
    if (i + VEC <= end && !any_overtakes(load_vector(row, i, DTYPE0), heap[0], descending)) {
      i += VEC;
      continue;
    }
    long last = min(i + VEC, end);
    // Elements come in the order of their indices, so one that equals the root is not better.
    for (; i < last; i++) {
      T value = load(row, i, DTYPE0);
      if (overtakes(value, heap[0], descending)) sink(heap, heap_indices, k, value, from ? from[i] : i, descending);
    }
  }
  // The worst goes to the end, and the heap shrinks.
  for (long count = k - 1; count > 0; count--) {
    T value = heap[count];
    long index = heap_indices[count];
    heap[count] = heap[0];
    heap_indices[count] = heap_indices[0];
    sink(heap, heap_indices, count, value, index, descending);
  }
}

#endif
