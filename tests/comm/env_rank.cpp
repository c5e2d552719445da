// One rank of a job of a real launcher: joins twice, sums, and says which rank it was.
#include <pith/pith.h>

#include <cstdint>
#include <cstdio>

namespace {

bool good(pithResult_t result, const char* what) {
  if (result == pithSuccess) return true;
  std::fprintf(stderr, "%s: %s\n", what, pithGetLastError(nullptr));
  return false;
}

bool join_and_sum() {
  pithComm_t comm = nullptr;
  if (!good(pithCommInitEnv(&comm), "pithCommInitEnv")) return false;
  int rank = -1;
  int size = 0;
  std::int64_t sum = 0;
  bool right = good(pithCommUserRank(comm, &rank), "pithCommUserRank") &&
               good(pithCommCount(comm, &size), "pithCommCount");
  const std::int64_t mine = rank + 1;
  right = right &&
          good(pithAllReduce(&mine, &sum, 1, pithInt64, pithSum, comm, nullptr), "pithAllReduce");
  right = good(pithCommDestroy(comm), "pithCommDestroy") && right;
  // One write, so that the lines of several ranks do not mix.
  char line[80];
  std::snprintf(line, sizeof line, "rank %d of %d: sum %lld\n", rank, size,
                static_cast<long long>(sum));
  std::fputs(line, stdout);
  std::fflush(stdout);
  return right;
}

}  // namespace

int main() { return join_and_sum() && join_and_sum() ? 0 : 1; }
