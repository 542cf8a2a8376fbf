const bit<8> x = 1.5;
