// Rounding of a vector to its storage dtype.

// x as stored in a tensor of dtype dt: integers wrap, floats are rounded to nearest even.
static inline TV rounded(TV x, int dt) {
#if defined(CLASS_F)
  if (dt == DT_F16) {
#if VEC == 1
    ushort bits;
    vstore_half_rte(x, 0, (half *)&bits);
    return vload_half(0, (const half *)&bits);
#else
    return half_values(half_bits(x));
#endif
  }
  // Adding and subtracting 2^16 + 1 times x leaves the upper 8 bits of its significand, rounded.
  if (dt == DT_BF16) {
    TV shifted = x * 65537;
    TV upper = shifted - (shifted - x);
    return SEL(isfinite(shifted), upper, x);
  }
#elif defined(CLASS_I)
  const int bits = sizeof(T) * 8;
  switch (dt) {
    case DT_BOOL: return B(x != 0);
    case DT_U8: return x & 255;
    case DT_I8: return x << (bits - 8) >> (bits - 8);
    case DT_I16: return x << (bits - 16) >> (bits - 16);
    case DT_I32: return x << (bits - 32) >> (bits - 32);
#ifdef RARE_DTYPES
    case DT_U16: return x & 0xffff;
    case DT_U32: return x & 0xffffffffL;
#endif
  }
#endif
  return x;
}
