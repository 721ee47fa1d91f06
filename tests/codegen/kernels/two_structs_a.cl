typedef struct {
  long step;
} Walk;
SHARED(Walk, 8);
