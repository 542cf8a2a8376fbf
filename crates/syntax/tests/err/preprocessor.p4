// Directives; more in src/preprocess/tests.rs.
#include <nowhere.p4> // ERROR E0001
#defin X // ERROR E0003
#error the target is not supported // ERROR E0004
#endif // ERROR E0005
#if 1 + // ERROR E0006
#endif
#define F(a) a
const int x = F(1, 2); // ERROR E0008
#ifdef NEVER // ERROR E0005
