// How weights of 2 to 8 bits are stored (CLASS_F, VEC 16). A row has whole chunks of 32 columns; `load_chunk` reads one.
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
// A weight is (code - BIAS) * scale + offset; without HAS_OFFSETS the offset is 0.
typedef struct {
  TV first, second;  // codes, or values of a table
  T scale[2], offset[2];
} Chunk;

#if FORMAT == AFFINE4 || FORMAT == TABLE4
#define IS_PAIRED
#endif
#if ZEROS != ZEROS_ABSENT || FORMAT == Q4_1 || FORMAT == Q5_1 || FORMAT == Q2_K || FORMAT == Q4_K || FORMAT == Q5_K
#define HAS_OFFSETS
#endif
#if FORMAT == Q4_0
#define BIAS 8
#elif FORMAT == Q5_0
#define BIAS 16
#elif FORMAT == Q3_K
#define BIAS 4
#elif FORMAT == Q6_K
#define BIAS 32
#elif FORMAT == AFFINE4 || FORMAT == TILES4
#define BIAS layout->bias
#endif

INLINE uint uint_at(__global const uchar *p) {
  return (uint)((__global const ushort *)p)[0] | (uint)((__global const ushort *)p)[1] << 16;
}
// 16 bytes of codes, in whole loads of the alignment that the blocks keep: the weight's address is a multiple of
// BYTES_ALIGNED.
INLINE uint4 codes_at(__global const uchar *p) {
#if BYTES_ALIGNED == 16 && (FORMAT >= TABLE4 || FORMAT == Q4_K || FORMAT == Q5_K)
  return *(__global const uint4 *)p;
#elif BYTES_ALIGNED == 16 && (FORMAT == Q4_1 || FORMAT == Q5_1 || FORMAT == Q2_K)
  return vload4(0, (__global const uint *)p);
#elif BYTES_ALIGNED > 1
  // clang 19 would turn vload8 of ushort into an aligned load of 16 bytes for NVIDIA's GPUs.
  return (uint4)(uint_at(p), uint_at(p + 4), uint_at(p + 8), uint_at(p + 12));
#else
  return as_uint4(vload16(0, p));
#endif
}
INLINE T half_at(__global const uchar *p) { return (T)vload_half(0, (__global const half *)p); }
#define TO_VALUES(codes) convert_float16(as_uchar16(codes))
#define TO_SIGNED_VALUES(codes) convert_float16(as_char16(codes))
// A mask for each of the 4 bytes of a word. Bytes are shifted and masked as words: vectors of bytes cost GPUs an
// instruction for each byte.
#define IN_BYTES(mask) ((uint4)((mask) * 0x01010101u))
// Bits `n` and following of each byte, as bits `to` and following.
#define BITS(codes, n, mask) ((codes) >> (uint4)(uint)(n) & IN_BYTES(mask))
#define BITS_TO(codes, n, mask, to) (BITS(codes, n, mask) << (uint4)(to))
#define LOWER(codes) ((codes) & IN_BYTES(15))
#define UPPER(codes) BITS(codes, 4, 15)

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
INLINE TV look_up(uint4 codes, Table values) {
#ifdef LOOK_UP_VECTOR
  return LOOK_UP_VECTOR(values, as_uchar16(codes));
#else
  union {
    uint4 vector;
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
INLINE uint4 spread_bits(uint bits) {
#ifdef IS_CPU
  const ushort16 masks = (ushort16)(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768);
  return as_uint4(convert_uchar16(((ushort16)(ushort)bits & masks) != (ushort16)0)) & IN_BYTES(16);
#else
  // 4 bits are copied to all bytes of a word, one bit further in each.
  const uint4 four = (uint4)(bits << 4, bits, bits >> 4, bits >> 8) & (uint4)0xf0;
  return (four | four << (uint4)7 | four << (uint4)14 | four << (uint4)21) & IN_BYTES(16);
#endif
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
INLINE uint4 tile_codes(__global const uchar *weight, const QuantizedLayout *layout, long row, long at) {
  const long first = (row >> 3) * layout->row_bytes * 2 + ((at / PAIRS * 32 + (row & 7) * 4) * PAIRS + at % PAIRS);
  __global const uint *words = (__global const uint *)weight + first;
  return (uint4)(words[0], words[PAIRS], words[2 * PAIRS], words[3 * PAIRS]);
}
#endif

// Codes and scales of chunk `at` of a row.
INLINE void load_chunk(Chunk *chunk, __global const uchar *weight, __global const uchar *scales,
                       __global const uchar *zeros, __global const uchar *table, const QuantizedLayout *layout,
                       long row, long at, Table values) {
  __global const uchar *codes = weight + row * layout->row_bytes;
#if FORMAT >= TABLE4
#if FORMAT == TILES4
  const uint4 packed = tile_codes(weight, layout, row, at);
  const uchar16 lower = as_uchar16(LOWER(packed)), upper = as_uchar16(UPPER(packed));
  chunk->first = TO_VALUES((uchar16)(lower.even, upper.even));
  chunk->second = TO_VALUES((uchar16)(lower.odd, upper.odd));
#elif FORMAT == AFFINE8
  codes += at * CHUNK;
  chunk->first = TO_SIGNED_VALUES(codes_at(codes));
  chunk->second = TO_SIGNED_VALUES(codes_at(codes + 16));
#else
  const uint4 packed = codes_at(codes + at * (CHUNK / 2));
#if FORMAT == AFFINE4
  chunk->first = TO_VALUES(LOWER(packed));
  chunk->second = TO_VALUES(UPPER(packed));
#else
  chunk->first = look_up(UPPER(packed), values);
  chunk->second = look_up(LOWER(packed), values);
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
  chunk->first = TO_SIGNED_VALUES(codes_at(block + 2));
  chunk->second = TO_SIGNED_VALUES(codes_at(block + 18));
  set_scale(chunk, d, 0);
#else
  const uint4 packed = codes_at(block + BLOCK_BYTES - 16);
  uint4 lower = LOWER(packed), upper = UPPER(packed);
#if FORMAT == Q5_0 || FORMAT == Q5_1
  const uint bits = uint_at(block + BLOCK_BYTES - 20);
  lower |= spread_bits(bits);
  upper |= spread_bits(bits >> 16);
#endif
#if FORMAT == IQ4_NL
  chunk->first = look_up(lower, values);
  chunk->second = look_up(upper, values);
#else
  chunk->first = TO_VALUES(lower);
  chunk->second = TO_VALUES(upper);
#endif
#if FORMAT == Q4_1 || FORMAT == Q5_1
  set_scale(chunk, d, half_at(block + 2));
#else
  set_scale(chunk, d, 0);
#endif
#endif
#else
  __global const uchar *block = codes + (at >> 3) * BLOCK_BYTES;
  const int c = (int)at & 7, part = c >> 2, shift = 2 * (c & 3);
#if FORMAT == Q4_K || FORMAT == Q5_K
  __global const uchar *from = block + BLOCK_BYTES - 128 + (c >> 1) * 32;
  const int nibble = 4 * (c & 1);
  uint4 first = BITS(codes_at(from), nibble, 15), second = BITS(codes_at(from + 16), nibble, 15);
#if FORMAT == Q5_K
  first |= BITS_TO(codes_at(block + 16), c, 1, 4);
  second |= BITS_TO(codes_at(block + 32), c, 1, 4);
#endif
  chunk->first = TO_VALUES(first);
  chunk->second = TO_VALUES(second);
  k_scales(chunk, block, c);
#elif FORMAT == Q6_K
  __global const uchar *low = block + 64 * part + 32 * (c & 1), *high = block + 128 + 32 * part;
  const int nibble = 4 * (c >> 1 & 1);
  chunk->first = TO_VALUES(BITS(codes_at(low), nibble, 15) | BITS_TO(codes_at(high), shift, 3, 4));
  chunk->second = TO_VALUES(BITS(codes_at(low + 16), nibble, 15) | BITS_TO(codes_at(high + 16), shift, 3, 4));
  const T d = half_at(block + 208);
  __global const char *own = (__global const char *)block + 192 + 2 * c;
  chunk->scale[0] = d * (T)own[0];
  chunk->scale[1] = d * (T)own[1];
#else
  __global const uchar *from = block + (FORMAT == Q3_K ? 32 : 16) + 32 * part;
  const uint4 first = BITS(codes_at(from), shift, 3), second = BITS(codes_at(from + 16), shift, 3);
#if FORMAT == Q3_K
  // A clear bit of the mask stands for 4 less.
  chunk->first = TO_VALUES(first | BITS_TO(codes_at(block), c, 1, 2));
  chunk->second = TO_VALUES(second | BITS_TO(codes_at(block + 16), c, 1, 2));
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

// Codes become weights.
INLINE void scale_chunk(Chunk *chunk, const QuantizedLayout *layout) {
#ifdef BIAS
  chunk->first -= (TV)(T)BIAS;
  chunk->second -= (TV)(T)BIAS;
#endif
  chunk->first *= (TV)chunk->scale[0];
  chunk->second *= (TV)chunk->scale[1];
#ifdef HAS_OFFSETS
  chunk->first += (TV)chunk->offset[0];
  chunk->second += (TV)chunk->offset[1];
#endif
}
