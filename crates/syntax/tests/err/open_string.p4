const bit<8> before = 1
; const string s = 1 + 2 " ; // ERROR E0103
