typedef struct {
  half scale;
} Scale;
SHARED(Scale, 2);
