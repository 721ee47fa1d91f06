typedef struct {
  int count;
} Walk;
SHARED(Walk);
