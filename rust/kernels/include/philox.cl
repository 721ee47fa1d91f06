// Philox 4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1,
// 2, 3" (SC 2011), over several counters in the lanes of vectors. `philox_8` computes random words from the words of
// counters in ten rounds, and `words_of_8` from counters.

#define DEFINE_PHILOX(lanes, Words, LongWords)                                                  \
  INLINE INLINED_ON_GPUS Words high_product_##lanes(Words a, uint b) {                          \
    return convert_##Words(convert_##LongWords(a) * (ulong)b >> 32ul);                          \
  }                                                                                             \
  INLINE INLINED_ON_GPUS void philox_##lanes(Words c[4], ulong seed) {                          \
    uint key0 = (uint)seed, key1 = (uint)(seed >> 32);                                          \
    for (int round = 0; round < 10; round++) {                                                  \
      Words high0 = high_product_##lanes(c[0], 0xD2511F53u), low0 = c[0] * 0xD2511F53u;         \
      Words high1 = high_product_##lanes(c[2], 0xCD9E8D57u), low1 = c[2] * 0xCD9E8D57u;         \
      c[0] = high1 ^ c[1] ^ key0;                                                               \
      c[1] = low1;                                                                              \
      c[2] = high0 ^ c[3] ^ key1;                                                               \
      c[3] = low0;                                                                              \
      key0 += 0x9E3779B9u;                                                                      \
      key1 += 0xBB67AE85u;                                                                      \
    }                                                                                           \
  }                                                                                             \
  INLINE INLINED_ON_GPUS void words_of_##lanes(ulong seed, LongWords counter, Words words[4]) { \
    words[0] = convert_##Words(counter);                                                        \
    words[1] = convert_##Words(counter >> 32ul);                                                \
    words[2] = 0;                                                                               \
    words[3] = 0;                                                                               \
    philox_##lanes(words, seed);                                                                \
  }
