// Brackets that do not match.
const bit<8> a = (1 + 2; // ERROR E0203
const bit<8> b = { 1, 2 ; // ERROR E0203
const bit<8> e = { f(1, 2 }; // ERROR E0203
header h_t { bit<8 x; } // ERROR E0203
} // ERROR E0203
control c() {
    apply {
        f(1, 2; // ERROR E0203
    } // ERROR E0203
