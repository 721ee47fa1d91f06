typedef struct {
  int sizes[MANY];
} Sizes;
SHARED(Sizes, 8);
