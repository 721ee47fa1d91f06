// Sums of long rows, as exact as sums of short rows: chains of few additions, whose results are added up with their
// rounding errors (W. Kahan, 1965). Work-items share the vectors of a row.

// Vectors in one chain of additions: in longer chains, rounding errors add up.
#define CHAIN 128

// A sum of any number of blocks, by lane, and the rounding errors of its additions (Kahan). `part` is the chain in
// progress, with `taken` elements of a row.
typedef struct {
  TV total, lost, part;
  long taken;
} BlockSum;

// Structs are passed by pointer: if a compiler copies a function that returns one, it adds metadata that Oclgrind does
// not know.
INLINE void empty_sum(BlockSum *sum) {
  sum->total = sum->lost = sum->part = (TV)0;
  sum->taken = 0;
}

INLINE void end_chain(BlockSum *sum) {
  TV value = sum->part - sum->lost, total = sum->total + value;
  sum->lost = (total - sum->total) - value;
  sum->total = total;
  sum->part = (TV)0;
  sum->taken = 0;
}

// Called after the items have added `count` elements of the row together: ends the chain if it is long enough.
INLINE void count_chain(BlockSum *sum, long count) {
  sum->taken += count;
  if (sum->taken >= CHAIN * LSIZE * VEC) end_chain(sum);
}

INLINE T finish_sum(const BlockSum *sum) { return lanes_sum(sum->total + (sum->part - sum->lost)); }

// The blocks of a run of `span` elements, none longer than a chain, and an item's vectors of a block.
#define FOR_BLOCKS(begin, end, span)                                               \
  for (long begin = 0, end = min(span, (long)CHAIN * LSIZE * VEC); begin < (span); \
       begin = end, end = min(span, end + (long)CHAIN * LSIZE * VEC))
#define FOR_VECTORS(i, begin, end) for (long i = (begin) + get_local_id(0) * VEC; i < (end); i += LSIZE * VEC)
