// Stable radix sort of the rows of a contiguous [rows, length] tensor, for CPUs: every pass streams through the row
// and orders it by one byte of the keys, the lowest byte first. A byte that is the same in the whole row is skipped.
//
// Short rows go to one work-item each (radix_rows), which does all passes while the row is in its cache. A long row is
// cut into `chunks` pieces: radix_keys, then for each byte radix_count, radix_offsets and radix_move, then radix_write.
// The first `k` elements of each sorted row are written.
// Work-items write to 256 addresses at a time, which suits a cache but not a GPU's coalescing, and count in 1 KiB of
// private memory, which a GPU's registers do not hold: programs for GPUs lack these kernels.

#ifndef IS_COMPLEX

#define BINS 256

// A record that is moved: the key, and the element's index in the row.
#ifdef CLASS_F
typedef uint Key;
typedef uint2 Record;
#else
typedef ulong Key;
typedef ulong2 Record;
#endif

// An unsigned integer in the order of the elements. Equal elements (both zeros, all NaN) have equal keys, so values are
// not restored from keys but read from the input.
static inline Key sort_key(T v, int dt, int descending) {
#if defined(CLASS_F)
  uint bits = v == 0 ? 0 : as_uint(v);
  uint key = isnan(v) ? 0xffffffffu : bits ^ ((uint)((int)bits >> 31) | 0x80000000u);
  // Drops bits that a shorter dtype does not have.
  return (descending ? ~key : key) >> (dt == DT_BF16 ? 16 : dt == DT_F16 ? 13 : 0);
#elif defined(CLASS_D)
  ulong bits = v == 0 ? 0 : as_ulong(v);
  ulong key = isnan(v) ? ~0ul : bits ^ ((ulong)((long)bits >> 63) | 1ul << 63);
  return descending ? ~key : key;
#else
  int width = dtype_size(dt) * 8;
  ulong key = (ulong)v + (dt == DT_U8 || dt == DT_BOOL ? 0 : 1ul << (width - 1));
  return (descending ? ~key : key) & (~0ul >> (64 - width));
#endif
}

#ifdef IS_CPU
static inline int digit(Key key, int pass) { return (int)(key >> (8 * pass)) & (BINS - 1); }

static inline bool is_constant(Key varying, int pass) { return digit(varying, pass) == 0; }

// Writes the records of elements [begin, end) of a row; returns the bits of the keys that differ from those of `first`.
static inline Key make_records(__global Record *to, __global const uchar *row, long begin, long end, int dt,
                               int descending) {
  Key first = sort_key(load(row, 0, dt), dt, descending), varying = 0;
  for (long i = begin; i < end; i++) {
    Key key = sort_key(load(row, i, dt), dt, descending);
    varying |= key ^ first;
    to[i] = (Record)(key, (Key)i);
  }
  return varying;
}

static inline void count_digits(__global const Record *from, long begin, long end, int pass, uint *counts) {
  for (int bin = 0; bin < BINS; bin++) counts[bin] = 0;
  for (long i = begin; i < end; i++) counts[digit(from[i].x, pass)]++;
}

static inline void move_records(__global Record *to, __global const Record *from, long begin, long end, int pass,
                                uint *positions) {
  for (long i = begin; i < end; i++) {
    Record record = from[i];
    to[positions[digit(record.x, pass)]++] = record;
  }
}

static inline void write_sorted(__global uchar *values, __global long *indices, __global const uchar *row,
                                __global const Record *from, long begin, long end, int dt) {
  for (long i = begin; i < end; i++) {
    long index = (long)from[i].y;
    store(values, i, dt, load(row, index, dt));
    indices[i] = index;
  }
}

// One work-item per row.
__kernel void radix_rows(__global uchar *values, ulong values_offset, __global uchar *indices, ulong indices_offset,
                         __global const uchar *input, ulong input_offset, __global uchar *records, ulong records_offset,
                         __global uchar *spare, ulong spare_offset, int dtype0, long length, long k, int passes,
                         int descending) {
  long start = get_global_id(0) * length, to_start = get_global_id(0) * k;
  __global const uchar *row = input + input_offset + start * dtype_size(DTYPE0);
  __global Record *from = (__global Record *)(records + records_offset) + start;
  __global Record *to = (__global Record *)(spare + spare_offset) + start;
  Key varying = make_records(from, row, 0, length, DTYPE0, descending);
  uint counts[BINS];
  for (int pass = 0; pass < passes; pass++) {
    if (is_constant(varying, pass)) continue;
    count_digits(from, 0, length, pass, counts);
    uint offset = 0;
    for (int bin = 0; bin < BINS; bin++) {
      uint count = counts[bin];
      counts[bin] = offset;
      offset += count;
    }
    move_records(to, from, 0, length, pass, counts);
    __global Record *moved = to;
    to = from;
    from = moved;
  }
  write_sorted(values + values_offset + to_start * dtype_size(DTYPE0),
               (__global long *)(indices + indices_offset) + to_start, row, from, 0, k, DTYPE0);
}

// The piece of a row that a work-item of the kernels below takes.
#define CHUNK_OF_ROW(length, chunks)              \
  long row_number = get_global_id(0) / (chunks);  \
  int chunk = (int)(get_global_id(0) % (chunks)); \
  long begin = (length) * chunk / (chunks), end = (length) * (chunk + 1) / (chunks)

// Bits that differ anywhere in a row.
static inline Key row_varying(__global const Key *varying, long row_number, int chunks) {
  Key bits = 0;
  for (int chunk = 0; chunk < chunks; chunk++) bits |= varying[row_number * chunks + chunk];
  return bits;
}

// Returns true if the previous passes left a row in the spare buffer: each pass that was not skipped swapped the
// buffers.
static inline bool is_swapped(Key varying, int pass) {
  int swaps = 0;
  for (int before = 0; before < pass; before++) swaps += !is_constant(varying, before);
  return swaps & 1;
}

__kernel void radix_keys(__global uchar *records, ulong records_offset, __global uchar *varying, ulong varying_offset,
                         __global const uchar *input, ulong input_offset, int dtype0, long length, int chunks,
                         int descending) {
  CHUNK_OF_ROW(length, chunks);
  __global const uchar *row = input + input_offset + row_number * length * dtype_size(DTYPE0);
  __global Record *to = (__global Record *)(records + records_offset) + row_number * length;
  ((__global Key *)(varying + varying_offset))[get_global_id(0)] =
      make_records(to, row, begin, end, DTYPE0, descending);
}

// counts: [rows, BINS, chunks].
__kernel void radix_count(__global const uchar *records, ulong records_offset, __global const uchar *spare,
                          ulong spare_offset, __global const uchar *varying, ulong varying_offset,
                          __global uchar *counts, ulong counts_offset, long length, int chunks, int pass) {
  CHUNK_OF_ROW(length, chunks);
  Key bits = row_varying((__global const Key *)(varying + varying_offset), row_number, chunks);
  if (is_constant(bits, pass)) return;
  __global const uchar *from_records = is_swapped(bits, pass) ? spare + spare_offset : records + records_offset;
  uint bins[BINS];
  count_digits((__global const Record *)from_records + row_number * length, begin, end, pass, bins);
  __global uint *to = (__global uint *)(counts + counts_offset) + row_number * BINS * chunks + chunk;
  for (int bin = 0; bin < BINS; bin++) to[(long)bin * chunks] = bins[bin];
}

// Turns the counts of each row into the offsets of each chunk's elements of each bin. One work-item per row.
__kernel void radix_offsets(__global uchar *counts, ulong counts_offset, int chunks) {
  __global uint *row = (__global uint *)(counts + counts_offset) + get_global_id(0) * BINS * chunks;
  uint offset = 0;
  for (long i = 0; i < (long)BINS * chunks; i++) {
    uint count = row[i];
    row[i] = offset;
    offset += count;
  }
}

__kernel void radix_move(__global uchar *records, ulong records_offset, __global uchar *spare, ulong spare_offset,
                         __global const uchar *varying, ulong varying_offset, __global const uchar *counts,
                         ulong counts_offset, long length, int chunks, int pass) {
  CHUNK_OF_ROW(length, chunks);
  Key bits = row_varying((__global const Key *)(varying + varying_offset), row_number, chunks);
  if (is_constant(bits, pass)) return;
  __global Record *first = (__global Record *)(records + records_offset) + row_number * length;
  __global Record *second = (__global Record *)(spare + spare_offset) + row_number * length;
  bool swapped = is_swapped(bits, pass);
  __global const uint *offsets = (__global const uint *)(counts + counts_offset) + row_number * BINS * chunks + chunk;
  uint positions[BINS];
  for (int bin = 0; bin < BINS; bin++) positions[bin] = offsets[(long)bin * chunks];
  move_records(swapped ? first : second, swapped ? second : first, begin, end, pass, positions);
}

__kernel void radix_write(__global uchar *values, ulong values_offset, __global uchar *indices, ulong indices_offset,
                          __global const uchar *input, ulong input_offset, __global const uchar *records,
                          ulong records_offset, __global const uchar *spare, ulong spare_offset,
                          __global const uchar *varying, ulong varying_offset, int dtype0, long length, long k,
                          int chunks, int passes) {
  CHUNK_OF_ROW(k, chunks);
  Key bits = row_varying((__global const Key *)(varying + varying_offset), row_number, chunks);
  __global const uchar *from_records = is_swapped(bits, passes) ? spare + spare_offset : records + records_offset;
  long start = row_number * length, to_start = row_number * k;
  write_sorted(values + values_offset + to_start * dtype_size(DTYPE0),
               (__global long *)(indices + indices_offset) + to_start,
               input + input_offset + start * dtype_size(DTYPE0), (__global const Record *)from_records + start, begin,
               end, DTYPE0);
}

#endif
#endif
