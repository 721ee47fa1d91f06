// Packs strided matrices into the panels of panel.cl.

#ifndef IS_COMPLEX
// Packs `count` elements that are dense in memory, and zeros up to `width`.
static inline void pack_dense(__global const uchar *input, int dt, long offset, int count, int width, __local R *out) {
  int i = 0;
  if (dt == R_DTYPE && width % VEC == 0) {
    __global const R *from = (__global const R *)input + offset;
    for (; i + VEC <= count; i += VEC) *(__local TV *)(out + i) = LOAD_UNALIGNED(from + i);
  }
  for (; i + BLOCK <= count; i += BLOCK) *(__local RB *)(out + i) = load_block(input, offset + i, dt);
  for (; i < count; ++i) out[i] = load_one(input, offset + i, dt);
  for (; i < width; ++i) out[i] = 0;
}

// Packs `run` values of k, dense in memory, of BLOCK lines. Inlined, so that a constant dtype leaves one kind of load.
ALWAYS_INLINE void transpose_run(__global const uchar *input, int dt, const long *lines, long offset, int run,
                                 int width, __local R *out) {
  for (int k = 0; k < run; k += BLOCK, out += BLOCK * width) {
    RB block[BLOCK];
  UNROLL for (int r = 0; r < BLOCK; ++r) block[r] = load_block(input, lines[r] + offset + k, dt);
    store_transposed(block, width, out);
  }
}
#endif

// Packs `wanted` indices of `outer`, up to BLOCK, from `first` on. `present` of them exist; the others become zero.
static inline void pack_lines(__global const uchar *input, int dt, const Axis *outer, const Axis *inner, long first,
                              int wanted, int present, long k_first, int k_count, int width, __local R *out) {
  long lines[BLOCK];
  for (int r = 0; r < present; ++r) lines[r] = axis_offset(outer, first + r);
  Walk walk = walk_from(inner, k_first);
  for (int k = 0; k < k_count;) {
#ifndef IS_COMPLEX
    const int run = (int)min(walk.left, (long)(k_count - k)) / BLOCK * BLOCK;
    if (present == BLOCK && inner->strides[0] == 1 && run > 0) {
      if (dt == R_DTYPE)
        transpose_run(input, R_DTYPE, lines, walk.offset, run, width, out);
      else
        transpose_run(input, dt, lines, walk.offset, run, width, out);
      walk_on(inner, &walk, run);
      k += run;
      out += run * width;
      continue;
    }
#endif
    for (int r = 0; r < wanted; ++r)
      ((__local T *)out)[r] = r < present ? load_one(input, lines[r] + walk.offset, dt) : FROM_REAL(0);
    walk_on(inner, &walk, 1);
    ++k;
    out += width;
  }
}

// Packs indices first .. last - 1 of `outer` as panels of `width` reals, for `k_count` values of k from k_first on. The
// last panel is padded with zeros.
static inline void pack_matrix(__global const uchar *input, int dt, const Axis *outer, const Axis *inner, long first,
                               long last, long k_first, int k_count, int width, __local R *out) {
  // An empty axis has no offsets.
  if (k_count == 0) return;
  const int count = width / PARTS;
#ifndef IS_COMPLEX
  if (first < last && axis_is_dense(outer, first, last - first)) {
    // Reads whole rows of the input, which are longer than a panel is wide: hardware prefetches them.
    const long origin = axis_offset(outer, first);
    Walk walk = walk_from(inner, k_first);
    for (int k = 0; k < k_count; ++k) {
      __local R *to = out + k * width;
      for (long i = first; i < last; i += count, to += k_count * width)
        pack_dense(input, dt, origin + walk.offset + i - first, (int)min((long)count, last - i), width, to);
      walk_on(inner, &walk, 1);
    }
    return;
  }
#endif
  for (; first < last; first += count, out += k_count * width) {
    for (int i = 0; i < count; i += BLOCK) {
      const int wanted = min(BLOCK, count - i);
      const int present = (int)clamp(last - first - i, 0L, (long)wanted);
      pack_lines(input, dt, outer, inner, first + i, wanted, present, k_first, k_count, width, out + i * PARTS);
    }
  }
}
