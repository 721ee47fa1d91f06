// The element that sorting would put at one position of each row of a contiguous [rows, length] tensor, and its index:
// as in a stable sort, but without sorting. For CPUs, like radix.cl, whose keys and records it uses.
//
// Rows are cut into `chunks` pieces. radix_keys makes the records of all elements. Then, from the highest byte on and
// without bytes that are the same in a whole row, kthvalue_count counts a byte of the candidates in each piece, and
// kthvalue_choose finds this digit of the wanted element; the next kthvalue_count drops the candidates with another
// digit. In the end only equal elements are left, of which kthvalue_write takes the right one.

#if defined(IS_CPU) && !defined(IS_COMPLEX)

// State of a row: the position of the wanted element among its candidates, and its latest digit.
typedef struct {
  long position;
  long digit;
} Wanted;

// The previous pass that looked at a byte, as passes go down; `passes` if none did.
static inline int pass_before(Key varying, int pass, int passes) {
  do pass++;
  while (pass < passes && is_constant(varying, pass));
  return pass;
}

// counts: [rows, chunks, BINS]; candidates: their number, at the beginning of each piece of the records.
__kernel void kthvalue_count(__global uchar *records, ulong records_offset, __global uchar *candidates,
                             ulong candidates_offset, __global uchar *counts, ulong counts_offset,
                             __global const uchar *varying, ulong varying_offset, __global const uchar *wanted,
                             ulong wanted_offset, long length, int chunks, int pass, int passes) {
  CHUNK_OF_ROW(length, chunks);
  Key bits = row_varying((__global const Key *)(varying + varying_offset), row_number, chunks);
  if (is_constant(bits, pass)) return;
  __global Record *list = (__global Record *)(records + records_offset) + row_number * length + begin;
  __global uint *left = (__global uint *)(candidates + candidates_offset) + get_global_id(0);
  uint bins[BINS];
  int before = pass_before(bits, pass, passes);
  if (before == passes) {
    count_digits(list, 0, end - begin, pass, bins);
    *left = (uint)(end - begin);
  } else {
    int chosen = (int)((__global const Wanted *)(wanted + wanted_offset))[row_number].digit;
    uint count = *left, stay = 0;
    for (int bin = 0; bin < BINS; bin++) bins[bin] = 0;
    // Without a branch on the digits, which would be unpredictable.
    for (uint i = 0; i < count; i++) {
      Record record = list[i];
      bool stays = digit(record.x, before) == chosen;
      list[stay] = record;
      bins[digit(record.x, pass)] += stays;
      stay += stays;
    }
    *left = stay;
  }
  __global uint *to = (__global uint *)(counts + counts_offset) + get_global_id(0) * BINS;
  for (int bin = 0; bin < BINS; bin++) to[bin] = bins[bin];
}

// One work-item per row; `positions` is read in the first pass.
__kernel void kthvalue_choose(__global uchar *wanted, ulong wanted_offset, __global const uchar *positions,
                              ulong positions_offset, __global const uchar *counts, ulong counts_offset,
                              __global const uchar *varying, ulong varying_offset, int chunks, int pass, int passes) {
  long row_number = get_global_id(0);
  __global Wanted *state = (__global Wanted *)(wanted + wanted_offset) + row_number;
  long position =
      pass == passes - 1 ? ((__global const long *)(positions + positions_offset))[row_number] : state->position;
  Key bits = row_varying((__global const Key *)(varying + varying_offset), row_number, chunks);
  if (!is_constant(bits, pass)) {
    __global const uint *row = (__global const uint *)(counts + counts_offset) + row_number * chunks * BINS;
    for (int bin = 0; bin < BINS; bin++) {
      long count = 0;
      for (int chunk = 0; chunk < chunks; chunk++) count += row[chunk * BINS + bin];
      state->digit = bin;
      if (position < count) break;
      position -= count;
    }
  }
  state->position = position;
}

// One work-item per row.
__kernel void kthvalue_write(__global uchar *values, ulong values_offset, __global uchar *indices, ulong indices_offset,
                             __global const uchar *input, ulong input_offset, __global const uchar *records,
                             ulong records_offset, __global const uchar *candidates, ulong candidates_offset,
                             __global const uchar *counts, ulong counts_offset, __global const uchar *varying,
                             ulong varying_offset, __global const uchar *wanted, ulong wanted_offset, int dtype0,
                             long length, int chunks, int passes) {
  long row_number = get_global_id(0);
  Wanted state = ((__global const Wanted *)(wanted + wanted_offset))[row_number];
  Key bits = row_varying((__global const Key *)(varying + varying_offset), row_number, chunks);
  int last = pass_before(bits, -1, passes);
  __global const Record *row = (__global const Record *)(records + records_offset) + row_number * length;
  // If all elements are equal, the position is the index.
  long index = state.position;
  for (int chunk = 0; last < passes && chunk < chunks; chunk++) {
    long piece = row_number * chunks + chunk;
    long equals = ((__global const uint *)(counts + counts_offset))[piece * BINS + state.digit];
    if (state.position >= equals) {
      state.position -= equals;
      continue;
    }
    __global const Record *list = row + length * chunk / chunks;
    uint left = ((__global const uint *)(candidates + candidates_offset))[piece];
    for (uint i = 0; i < left; i++) {
      if (digit(list[i].x, last) != state.digit) continue;
      index = (long)list[i].y;
      if (state.position-- == 0) break;
    }
    break;
  }
  T value = load(input + input_offset, row_number * length + index, DTYPE0);
  store(values + values_offset, row_number, DTYPE0, value);
  ((__global long *)(indices + indices_offset))[row_number] = index;
}

#endif
