const boool x = true;
struct s_t { varbt y; }
