// Fake quantisation, for rows with `part: quantization`: to integers from quant_min to quant_max, stored as floats.

#ifdef IS_FLOAT
// 1 / scale as a float32, by which PyTorch multiplies for every dtype.
static inline TV inverse_scale(TV scale) {
  const TV inverse = 1 / scale;
#ifdef CLASS_D
  // Adding and subtracting 2^29 + 1 times x leaves the upper 24 bits of its significand, rounded.
  const TV shifted = inverse * 536870913.0;
  const TV upper = shifted - (shifted - inverse);
  return SEL(isfinite(shifted), upper, inverse);
#else
  return inverse;
#endif
}

// The quantised x, not yet clamped. A fractional zero point is added before rounding.
static inline TV quantized(TV x, TV scale, TV zero_point, T is_fractional) {
  const TV steps = x * inverse_scale(scale);
  return is_fractional != 0 ? rint(zero_point + steps) : zero_point + rint(steps);
}

// The bounds of a range that includes 0, and the scale and zero point for it, as in FBGEMM's ChooseQuantizationParams.
// With preserves_sparsity, 0 is the middle of the integers.
typedef struct {
  TV low, high, scale, zero_point;
} Quantization;

static inline Quantization quantization(TV low, TV high, T quant_min, T quant_max, T preserves_sparsity) {
  const T steps = quant_max - quant_min, half_steps = floor(steps / 2);
  const TV is_middle = preserves_sparsity != 0 ? B(low < 0 && high > 0) : C(0);
  const TV step = fmax(-low / (half_steps + 1), high / half_steps);
  Quantization result;
  result.low = fmin(SEL(is_middle != 0, -step * (half_steps + 1), low), C(0));
  result.high = fmax(SEL(is_middle != 0, step * half_steps, high), C(0));
  result.scale = (result.high - result.low) / steps;
  result.scale = SEL(result.scale == 0 || isinf(1 / result.scale), LIT(0.1), result.scale);
  // The scale is at least the smallest normal float16; a larger scale widens the range.
  const T smallest = LIT(6.1e-5);
  const TV growth = SEL(result.scale < smallest, smallest / result.scale, 1);
  result.low *= growth;
  result.high *= growth;
  result.scale = fmax(result.scale, C(smallest));
  // From the bound that is fewer steps away, which is more exact.
  const TV below = result.low / result.scale, above = result.high / result.scale;
  const TV from_low = quant_min - below, from_high = quant_max - above;
  const TV is_low = B(fabs(C(quant_min)) - fabs(below) < fabs(C(quant_max)) - fabs(above));
  const TV nearest = SEL(is_low != 0, from_low, from_high);
  result.zero_point =
      rint(clamp(SEL(is_middle != 0, (quant_min + quant_max) / 2, nearest), C(quant_min), C(quant_max)));
  return result;
}
#endif
