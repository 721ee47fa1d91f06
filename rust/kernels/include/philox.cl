// Philox 4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1,
// 2, 3" (SC 2011). A work-item of a CPU runs LANES counters in vectors, but where a program sets that to 1.

#ifndef LANES
#ifdef IS_CPU
#define LANES 8
#else
#define LANES 1
#endif
#endif
#if LANES == 8
typedef uint8 Words;
typedef ulong8 LongWords;
#define TO_WORDS convert_uint8
#define TO_LONG_WORDS convert_ulong8
#else
typedef uint Words;
typedef ulong LongWords;
#define TO_WORDS convert_uint
#define TO_LONG_WORDS convert_ulong
#endif

static inline Words high_product(Words a, uint b) { return TO_WORDS(TO_LONG_WORDS(a) * (ulong)b >> 32ul); }

// Ten rounds over LANES counters; `c` goes from counter words to random words.
static inline void philox(Words c[4], ulong seed) {
  uint key0 = (uint)seed, key1 = (uint)(seed >> 32);
  for (int round = 0; round < 10; round++) {
    Words high0 = high_product(c[0], 0xD2511F53u), low0 = c[0] * 0xD2511F53u;
    Words high1 = high_product(c[2], 0xCD9E8D57u), low1 = c[2] * 0xCD9E8D57u;
    c[0] = high1 ^ c[1] ^ key0;
    c[1] = low1;
    c[2] = high0 ^ c[3] ^ key1;
    c[3] = low0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

// The words of counters.
static inline void words_of(ulong seed, LongWords counter, Words words[4]) {
  words[0] = TO_WORDS(counter);
  words[1] = TO_WORDS(counter >> 32ul);
  words[2] = 0;
  words[3] = 0;
  philox(words, seed);
}
