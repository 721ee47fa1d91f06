// How weights of 2 to 8 bits are stored (CLASS_F, VEC 16). A row has whole chunks of 32 columns; `decode_chunk` unpacks one.
//
// FORMAT, SCALE_DTYPE and ZERO_DTYPE are constants of the program. The numbers below 100 are ggml's types, whose blocks hold scales and codes
// (the package gguf describes them); with the others, scales are in separate tensors.

// Products and sums are rounded one by one, so that unpacked weights are equal to those of other libraries.
#pragma OPENCL FP_CONTRACT OFF

#define Q4_0 2
#define Q4_1 3
#define Q5_0 6
#define Q5_1 7
#define Q8_0 8
#define Q2_K 10
#define Q3_K 11
#define Q4_K 12
#define Q5_K 13
#define Q6_K 14
#define IQ4_NL 20
#define TABLE4 100  // positions in a table of 16 values, two to a byte, the upper half first
#define AFFINE4 101  // unsigned integers, two to a byte, the lower half first
#define AFFINE8 102  // signed integers
#define TILES4 103  // unsigned integers in tiles of 8 rows, as _convert_weight_to_int4pack orders them

// There are no `zeros`; or they are subtracted from the codes; or they are added to the products of codes and scales.
#define ZEROS_ABSENT 0
#define ZEROS_OF_CODES 1
#define ZEROS_OF_VALUES 2

#define CHUNK 32
// A table starts with the values of the codes. The values of nested scales follow.
#define TABLE_VALUES 16
// Nested scales are multiplied by one scale for each such block.
#define NESTED_BLOCK 256

typedef struct {
  long rows;  // of the weight
  long k;  // its columns
  long row_bytes;  // of codes
  long scale_row;  // elements of `scales` and `zeros` between rows
  long scale_group;  // and between groups of a row
  int log2_group;  // columns of a group
  int bias;  // subtracted from each code
} QuantizedLayout;
SHARED(QuantizedLayout, 48);

#define QUANTIZED_ARGUMENTS                                                                             \
  __global const uchar *weight, ulong weight_offset, __global const uchar *scales, ulong scales_offset, \
      __global const uchar *zeros, ulong zeros_offset, __global const uchar *table, ulong table_offset, \
      QuantizedLayout layout

// 32 columns of a row. Of AFFINE4 and TABLE4, `first` has the even ones and `second` the odd ones; otherwise each has
// 16 neighbours.
// Codes that are still to be multiplied by their scale, and added to their offset if HAS_OFFSETS.
typedef struct {
  TV first, second;
  T scale[2], offset[2];
} Chunk;

#if FORMAT == AFFINE4 || FORMAT == TABLE4
#define IS_PAIRED
#endif
#if ZEROS != ZEROS_ABSENT || FORMAT == Q4_1 || FORMAT == Q5_1 || FORMAT == Q2_K || FORMAT == Q4_K || FORMAT == Q5_K
#define HAS_OFFSETS
#endif

// 16 bytes at an address that is a multiple of BYTES_ALIGNED: blocks of ggml have even sizes.
#if FORMAT < TABLE4
#define BYTES_ALIGNED 2
#elif !defined(BYTES_ALIGNED)
#define BYTES_ALIGNED 1
#endif
typedef struct __attribute__((packed, aligned(BYTES_ALIGNED))) {
  uchar16 values;
} Bytes16;
INLINE uchar16 bytes_at(__global const uchar *p) { return ((__global const Bytes16 *)p)->values; }
INLINE T half_at(__global const uchar *p) { return (T)vload_half(0, (__global const half *)p); }
#define TO_VALUES(codes) convert_float16(codes)
// Bits n and following of each byte. Vectors of bytes have no shifts in hardware; what crosses a byte is masked away.
#define BITS(bytes, n, mask) (as_uchar16(as_uint4(bytes) >> (uint4)(uint)(n)) & (uchar16)(mask))
#define LOWER(bytes) ((bytes) & (uchar16)15)
#define UPPER(bytes) BITS(bytes, 4, 15)
// Bit n of each byte, as a bit at another index.
#define BIT_AT(bytes, n, bit) as_uchar16(as_uint4(BITS(bytes, n, 1)) << (uint4)(bit))
#define TWO_BITS_AT(bytes, n, bit) as_uchar16(as_uint4(BITS(bytes, n, 3)) << (uint4)(bit))

INLINE void set_scale(Chunk *chunk, T scale, T offset) {
  chunk->scale[0] = chunk->scale[1] = scale;
  chunk->offset[0] = chunk->offset[1] = offset;
}

// Values of a table of 16. Processors with AVX-512 look up a vector in one instruction, which OpenCL C cannot express;
// GPUs have a value in each bank of local memory.
#if FORMAT == TABLE4 || FORMAT == IQ4_NL
#if defined(IS_CPU) && defined(HAS_CLANG_BUILTINS) && defined(__AVX512F__)
#if __has_builtin(__builtin_ia32_permvarsf512)
#define LOOK_UP_VECTOR(values, codes) __builtin_ia32_permvarsf512(values, convert_int16(codes))
#endif
#endif
#if FORMAT == IQ4_NL
__constant float IQ4_VALUES[TABLE_VALUES] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
#define TABLE_SOURCE(table) IQ4_VALUES
#else
#define TABLE_SOURCE(table) ((__global const float *)(table))
#endif
#ifdef LOOK_UP_VECTOR
typedef float16 Table;
#define DECLARE_TABLE(name, table) const Table name = vload16(0, TABLE_SOURCE(table))
#else
typedef __local const float *Table;
#define DECLARE_TABLE(name, table)                                                                          \
  __local float name[TABLE_VALUES];                                                                         \
  for (int i = get_local_id(0); i < TABLE_VALUES; i += get_local_size(0)) name[i] = TABLE_SOURCE(table)[i]; \
  barrier(CLK_LOCAL_MEM_FENCE)
#endif
INLINE TV look_up(uchar16 codes, Table values) {
#ifdef LOOK_UP_VECTOR
  return LOOK_UP_VECTOR(values, codes);
#else
  union {
    uchar16 vector;
    uchar lanes[16];
  } from;
  Lanes to;
  from.vector = codes;
  UNROLL for (int l = 0; l < 16; l++) to.lanes[l] = values[from.lanes[l]];
  return to.vector;
#endif
}
#else
typedef int Table;
#define DECLARE_TABLE(name, table) const Table name = 0
#endif

// Blocks of 32 columns.
#if FORMAT == Q4_0
#define BLOCK_BYTES 18
#elif FORMAT == Q4_1
#define BLOCK_BYTES 20
#elif FORMAT == Q5_0
#define BLOCK_BYTES 22
#elif FORMAT == Q5_1
#define BLOCK_BYTES 24
#elif FORMAT == Q8_0
#define BLOCK_BYTES 34
#elif FORMAT == IQ4_NL
#define BLOCK_BYTES 18
// Blocks of 256 columns.
#elif FORMAT == Q2_K
#define BLOCK_BYTES 84
#elif FORMAT == Q3_K
#define BLOCK_BYTES 110
#elif FORMAT == Q4_K
#define BLOCK_BYTES 144
#elif FORMAT == Q5_K
#define BLOCK_BYTES 176
#elif FORMAT == Q6_K
#define BLOCK_BYTES 210
#endif

// 16 bits, each as a byte with 16 or 0.
INLINE uchar16 spread_bits(uint bits) {
  const ushort16 masks = (ushort16)(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768);
  return convert_uchar16(((ushort16)(ushort)bits & masks) != (ushort16)0) & (uchar16)16;
}
INLINE uint uint_at(__global const uchar *p) {
  return (uint)((__global const ushort *)p)[0] | (uint)((__global const ushort *)p)[1] << 16;
}

#if FORMAT == Q4_K || FORMAT == Q5_K
// Scale and minimum of chunk `c` of 8: 6 bits each, in 12 bytes.
INLINE void k_scales(Chunk *chunk, __global const uchar *block, int c) {
  __global const uchar *packed = block + 4;
  int scale, minimum;
  if (c < 4) {
    scale = packed[c] & 63;
    minimum = packed[c + 4] & 63;
  } else {
    scale = (packed[c + 4] & 15) | (packed[c - 4] >> 6) << 4;
    minimum = packed[c + 4] >> 4 | (packed[c] >> 6) << 4;
  }
  set_scale(chunk, half_at(block) * (T)scale, -(half_at(block + 2) * (T)minimum));
}
#endif
#if FORMAT == Q3_K
// Scale i of 16: 4 bits in the first 8 bytes, 2 in the last 4.
INLINE T q3_scale(__global const uchar *packed, int i) {
  const int low = i < 8 ? packed[i] & 15 : packed[i - 8] >> 4, high = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
  return (T)((low | high << 4) - 32);
}
#endif

#if FORMAT == TILES4
// The 4 words that hold a chunk of a row. PAIRS chunks alternate. Word t has the columns 2t, 2t + 8, 2t + 16, 2t + 24 in
// its lower half, from the lowest bits on, and their right neighbours in its upper half.
INLINE uchar16 tile_bytes(__global const uchar *weight, const QuantizedLayout *layout, long row, long at) {
  const long first = (row >> 3) * layout->row_bytes * 2 + ((at / PAIRS * 32 + (row & 7) * 4) * PAIRS + at % PAIRS);
  __global const uint *words = (__global const uint *)weight + first;
  return as_uchar16((uint4)(words[0], words[PAIRS], words[2 * PAIRS], words[3 * PAIRS]));
}
#endif

// Codes and scales of chunk `at` of a row.
INLINE void load_chunk(Chunk *chunk, __global const uchar *weight, __global const uchar *scales,
                       __global const uchar *zeros, __global const uchar *table, const QuantizedLayout *layout,
                       long row, long at, Table values) {
  __global const uchar *codes = weight + row * layout->row_bytes;
#if FORMAT >= TABLE4
#if FORMAT == TILES4
  const uchar16 bytes = tile_bytes(weight, layout, row, at);
  const uchar16 lower = LOWER(bytes), upper = UPPER(bytes);
  const char16 bias = (char16)(char)layout->bias;
  chunk->first = TO_VALUES(as_char16((uchar16)(lower.even, upper.even)) - bias);
  chunk->second = TO_VALUES(as_char16((uchar16)(lower.odd, upper.odd)) - bias);
#elif FORMAT == AFFINE8
  codes += at * CHUNK;
  chunk->first = TO_VALUES(as_char16(bytes_at(codes)));
  chunk->second = TO_VALUES(as_char16(bytes_at(codes + 16)));
#else
  const uchar16 bytes = bytes_at(codes + at * (CHUNK / 2));
#if FORMAT == AFFINE4
  const char16 bias = (char16)(char)layout->bias;
  chunk->first = TO_VALUES(as_char16(LOWER(bytes)) - bias);
  chunk->second = TO_VALUES(as_char16(UPPER(bytes)) - bias);
#else
  chunk->first = look_up(UPPER(bytes), values);
  chunk->second = look_up(LOWER(bytes), values);
#endif
#endif
#if FORMAT == TABLE4
  // Groups ignore rows.
  const long group = (row * layout->k + at * CHUNK) >> layout->log2_group;
#else
  const long group = row * layout->scale_row + (at * CHUNK >> layout->log2_group) * layout->scale_group;
#endif
#ifdef NESTED
  __global const float *own = (__global const float *)table + TABLE_VALUES;
  const T scale = own[zeros[group]] * load(scales, group / NESTED_BLOCK, SCALE_DTYPE) + own[256];
#else
  const T scale = load(scales, group, SCALE_DTYPE);
#endif
#if ZEROS == ZEROS_OF_CODES
  set_scale(chunk, scale, -(load(zeros, group, ZERO_DTYPE) * scale));
#elif ZEROS == ZEROS_OF_VALUES
  set_scale(chunk, scale, load(zeros, group, ZERO_DTYPE));
#else
  set_scale(chunk, scale, 0);
#endif
#elif FORMAT == Q4_0 || FORMAT == Q4_1 || FORMAT == Q5_0 || FORMAT == Q5_1 || FORMAT == Q8_0 || FORMAT == IQ4_NL
  __global const uchar *block = codes + at * BLOCK_BYTES;
  const T d = half_at(block);
#if FORMAT == Q8_0
  chunk->first = TO_VALUES(as_char16(bytes_at(block + 2)));
  chunk->second = TO_VALUES(as_char16(bytes_at(block + 18)));
  set_scale(chunk, d, 0);
#else
  const uchar16 bytes = bytes_at(block + BLOCK_BYTES - 16);
  uchar16 lower = LOWER(bytes), upper = UPPER(bytes);
#if FORMAT == Q5_0 || FORMAT == Q5_1
  const uint bits = uint_at(block + BLOCK_BYTES - 20);
  lower |= spread_bits(bits & 0xffff);
  upper |= spread_bits(bits >> 16);
#endif
#if FORMAT == IQ4_NL
  chunk->first = look_up(lower, values);
  chunk->second = look_up(upper, values);
  set_scale(chunk, d, 0);
#elif FORMAT == Q4_0 || FORMAT == Q5_0
  const char16 middle = (char16)(FORMAT == Q4_0 ? 8 : 16);
  chunk->first = TO_VALUES(as_char16(lower) - middle);
  chunk->second = TO_VALUES(as_char16(upper) - middle);
  set_scale(chunk, d, 0);
#else
  chunk->first = TO_VALUES(lower);
  chunk->second = TO_VALUES(upper);
  set_scale(chunk, d, half_at(block + 2));
#endif
#endif
#else
  __global const uchar *block = codes + (at >> 3) * BLOCK_BYTES;
  const int c = (int)at & 7, part = c >> 2, shift = 2 * (c & 3);
#if FORMAT == Q4_K || FORMAT == Q5_K
  __global const uchar *from = block + BLOCK_BYTES - 128 + (c >> 1) * 32;
  const int nibble = 4 * (c & 1);
  uchar16 first = BITS(bytes_at(from), nibble, 15), second = BITS(bytes_at(from + 16), nibble, 15);
#if FORMAT == Q5_K
  first |= BIT_AT(bytes_at(block + 16), c, 4);
  second |= BIT_AT(bytes_at(block + 32), c, 4);
#endif
  chunk->first = TO_VALUES(first);
  chunk->second = TO_VALUES(second);
  k_scales(chunk, block, c);
#elif FORMAT == Q6_K
  __global const uchar *low = block + 64 * part + 32 * (c & 1), *high = block + 128 + 32 * part;
  const int nibble = 4 * (c >> 1 & 1);
  const uchar16 first = BITS(bytes_at(low), nibble, 15) | TWO_BITS_AT(bytes_at(high), shift, 4);
  const uchar16 second = BITS(bytes_at(low + 16), nibble, 15) | TWO_BITS_AT(bytes_at(high + 16), shift, 4);
  chunk->first = TO_VALUES(as_char16(first) - (char16)32);
  chunk->second = TO_VALUES(as_char16(second) - (char16)32);
  const T d = half_at(block + 208);
  __global const char *own = (__global const char *)block + 192 + 2 * c;
  chunk->scale[0] = d * (T)own[0];
  chunk->scale[1] = d * (T)own[1];
#else
  __global const uchar *from = block + (FORMAT == Q3_K ? 32 : 16) + 32 * part;
  const uchar16 first = BITS(bytes_at(from), shift, 3), second = BITS(bytes_at(from + 16), shift, 3);
#if FORMAT == Q3_K
  // A clear bit of the mask stands for 4 less.
  chunk->first = TO_VALUES(as_char16(first | BIT_AT(bytes_at(block), c, 2)) - (char16)4);
  chunk->second = TO_VALUES(as_char16(second | BIT_AT(bytes_at(block + 16), c, 2)) - (char16)4);
  const T d = half_at(block + 108);
  chunk->scale[0] = d * q3_scale(block + 96, 2 * c);
  chunk->scale[1] = d * q3_scale(block + 96, 2 * c + 1);
#else
  chunk->first = TO_VALUES(first);
  chunk->second = TO_VALUES(second);
  const T d = half_at(block + 80), minimum = half_at(block + 82);
  UNROLL for (int i = 0; i < 2; i++) {
    const uchar own = block[2 * c + i];
    chunk->scale[i] = d * (T)(own & 15);
    chunk->offset[i] = -(minimum * (T)(own >> 4));
  }
#endif
#endif
#endif
}

// The weights of chunk `at` of a row.
INLINE void decode_chunk(Chunk *chunk, __global const uchar *weight, __global const uchar *scales,
                         __global const uchar *zeros, __global const uchar *table, const QuantizedLayout *layout,
                         long row, long at, Table values) {
  load_chunk(chunk, weight, scales, zeros, table, layout, row, at, values);
  chunk->first *= (TV)chunk->scale[0];
  chunk->second *= (TV)chunk->scale[1];
#ifdef HAS_OFFSETS
  chunk->first += (TV)chunk->offset[0];
  chunk->second += (TV)chunk->offset[1];
#endif
}
