// The counters that a work-item processes at a time: LANES on CPUs, unless a program sets LANES to 1.

#ifndef LANES
#ifdef IS_CPU
#define LANES 8
#else
#define LANES 1
#endif
#endif
#if LANES == 8
DEFINE_PHILOX(8, uint8, ulong8)
typedef uint8 Words;
typedef ulong8 LongWords;
#define TO_LONG_WORDS convert_ulong8
#define philox philox_8
#define words_of words_of_8
#else
DEFINE_PHILOX(1, uint, ulong)
typedef uint Words;
typedef ulong LongWords;
#define TO_LONG_WORDS convert_ulong
#define philox philox_1
#define words_of words_of_1
#endif
