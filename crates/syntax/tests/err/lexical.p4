// What the lexer and the literals complain about.
const int a = 0x; // ERROR E0104
const int b = 0b102; // ERROR E0104
const int c = 12ab; // ERROR E0104
const int d = 8w; // ERROR E0104
const int e = 8x3; // ERROR E0104
const int f = 99999999999w1; // ERROR E0104
const int g = 1 $ + 2; // ERROR E0101
const int h = 'a'; // ERROR E0101 E0101
const int i = 1 \ + 2; // ERROR E0101
const string s = "x"; /* not a comment that ends // ERROR E0102
