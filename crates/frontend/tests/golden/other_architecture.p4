#include <core.p4>
#include <tna.p4>
