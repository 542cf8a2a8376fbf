#ifndef FIELDS
#define FIELDS
#define SHARED_FIELD bit<2> shared;
#endif
