// Bits of values for hashes, for rows with `part: hash`.

#ifdef IS_INTEGER
// Converts the bits of a float32 to those of a double, so that devices without fp64 hash like others. A subnormal value
// becomes normal, and a signalling NaN quiet.
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
