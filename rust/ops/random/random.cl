// Random tensors from the counter-based generator of philox.cl.
//
// The stream consists of counters, of four 32-bit words each. A group is COUNTERS_PER_GROUP consecutive counters, and
// makes GROUP output elements: the first words of its counters come side by side, then the second words. The counter
// and word of an element depend only on its position, not on the launch, the work-group size or the device.
// Permutations do depend on the device: CPUs swap by these numbers, and GPUs sort them as keys. The host advances the
// generator's offset by COUNTERS_PER_GROUP counters per group.
//
// A work-item on a CPU runs the counters of a group in the lanes of vectors; on GPUs it has one (random_groups.cl).
// Outputs are dense. All distributions share one entry point, `op` and two parameters; each is a row of
// native_functions.yaml.

#define COUNTERS_PER_GROUP 8

// Vector k of a group of 64-bit words.
static inline LongWords long_words(const Words words[4], int k) {
  return TO_LONG_WORDS(words[2 * k]) << 32ul | TO_LONG_WORDS(words[2 * k + 1]);
}

#ifdef IS_INTEGER

#define GROUP 16
#define VECTORS 2

#elif defined(IS_FLOAT)

#ifdef CLASS_F
#define GROUP 32
#define VECTORS 4
#define NATURAL_DTYPE DT_F32
#else
#define GROUP 16
#define VECTORS 2
#define NATURAL_DTYPE DT_F64
#endif
#if LANES == 1
typedef T TV;
#elif defined(CLASS_F)
typedef float8 TV;
#else
typedef double8 TV;
#endif
#if LANES == 1
#define TO_TV(words) ((T)(words))
#elif defined(CLASS_F)
#define TO_TV convert_float8
#else
#define TO_TV convert_double8
#endif

// Vector k of a group, uniform in [0, 1): as many bits as T holds, so that 1 is never reached.
static inline TV uniform_vector(const Words words[4], int k) {
#ifdef CLASS_F
  return TO_TV(words[k] >> 8u) * 0x1p-24f;
#else
  return TO_TV(long_words(words, k) >> 11ul) * LIT(0x1p-53);
#endif
}

// Vector k of a group, uniform in (0, 1): never 0, for logarithms; float keeps 32 bits near 0, for long tails.
static inline TV open_uniform_vector(const Words words[4], int k) {
#ifdef CLASS_F
  return fmin(TO_TV(words[k]) * 0x1p-32f + 0x1p-33f, (TV)0x1.fffffep-1f);
#else
  return uniform_vector(words, k) + LIT(0x1p-54);
#endif
}

// Box-Muller: vectors 0 and 1 make two independent normal vectors, so do 2 and 3.
static inline TV normal_vector(const Words words[4], int k) {
  TV radius = sqrt((T)-2 * log(open_uniform_vector(words, k & ~1)));
  TV angle = (T)2 * uniform_vector(words, k | 1);
  return radius * (k & 1 ? sinpi(angle) : cospi(angle));
}

#define C(x) ((TV)(x))
#define UNIFORM uniform_vector(words, k)
#define OPEN_UNIFORM open_uniform_vector(words, k)
#define NORMAL normal_vector(words, k)

//@FUNCTIONS@

// Vector k of a group, from distribution `op` of native_functions.yaml.
static inline TV sample(int op, const Words words[4], int k, T s0, T s1) {
  switch (op) {
    //@CASES@
  }
  return 0;
}

#endif
