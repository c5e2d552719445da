/* Prints NCCL's version and the mapped files that are called libnccl: as linked, and again after
 * opening the plain soname. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "nccl/abi.h"

static void print_mapped(void) {
  char line[4096], last[4096] = "";
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps)) {
    char* path = strchr(line, '/');
    if (!path || !strstr(path, "libnccl") || strcmp(path, last) == 0) continue;
    strcpy(last, path);
    printf("%s", path);
  }
  if (maps) fclose(maps);
}

int main(void) {
  int version = 0;
  ncclGetVersion(&version);
  printf("%d\n", version);
  print_mapped();
  void* again = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  int (*get)(int*) = again ? (int (*)(int*))dlsym(again, "ncclGetVersion") : NULL;
  if (!get || get(&version) != 0) return 1;
  printf("%d\n", version);
  print_mapped();
  return 0;
}
