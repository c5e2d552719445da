/* Refers to every name of the table, plain and with its p, and so does not load where one is
 * missing. Prints the names; check_symbols.sh compares them with what the library exports. */
#include <stdio.h>

#include "nccl/abi.h"

typedef void (*any_function)(void);

static const struct {
  const char* name;
  any_function function;
} table[] = {
#define ENTRY(result, name, parameters) \
  {#name, (any_function)name}, {"p" #name, (any_function)p##name},
    NCCL_FUNCTIONS(ENTRY)
#undef ENTRY
};

int main(void) {
  int bad = 0;
  for (size_t i = 0; i < sizeof table / sizeof *table; ++i) {
    printf("%s\n", table[i].name);
    if (table[i].function == NULL) bad = 1;
  }
  return bad;
}
