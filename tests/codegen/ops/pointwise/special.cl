// Functions of a part.
INLINE T mantissa(T a) { return a; }
INLINE T exponent_of(T a) { return a; }
INLINE T cmul(T a, T b) { return a * b; }
