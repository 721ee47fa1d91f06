// Bits of numbers for hashes, for rows with `part: hash`.

#ifdef IS_INTEGER
// The bits of a float32 as a double, from its own: devices without fp64 hash as others do. A subnormal number is normal
// then, and a signalling NaN is quiet.
static inline TV double_bits(TV bits) {
  const TV exponent = bits >> 23 & 255, fraction = bits & 0x7fffff;
  const TV leading = 63 - clz(fraction);
  const TV normal = exponent + 896 << 52 | fraction << 29;
  const TV subnormal = leading + 874 << 52 | (fraction << (52 - leading) & 0xfffffffffffffL);
  const TV beyond = C(2047L << 52) | fraction << 29 | SEL(fraction != 0, 1L << 51, 0);
  const TV finite = SEL(exponent != 0, normal, SEL(fraction != 0, subnormal, 0));
  return (bits >> 31 & 1) << 63 | SEL(exponent == 255, beyond, finite);
}
#endif
