#ifdef WIDE
#define MANY 8
#else
#define MANY 4
#endif

typedef struct {
  int sizes[MANY];
} Sizes;
SHARED(Sizes, 16);
