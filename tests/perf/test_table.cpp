// The table's text: columns stay where nccl-tests has them.
#include <cmath>

#include "catch.hpp"
#include "perf/frame/table.hpp"

using namespace pith_perf;

TEST_CASE("numbers give up decimals to stay in their column", "[perf]") {
  CHECK(number(1.234, 7) == "   1.23");
  CHECK(number(1234.567, 7) == "1234.57");
  CHECK(number(12345.67, 7) == "12345.7");
  CHECK(number(1234567.8, 7) == "1234568");
  CHECK(number(123456789.0, 7) == "1.2e+08");
  CHECK(number(999.999, 6) == "1000.0");
}

TEST_CASE("a line of the table", "[perf]") {
  const std::string line = beginning({65536, 16384, "float", "sum", -1}) +
                           half({12.5, 5.24, 5.24, 0}) + half({13.25, 4.95, 4.95, std::nullopt});
  CHECK(line ==
        "       65536         16384     float     sum      -1    12.50    5.24    5.24       0"
        "    13.25    4.95    4.95     N/A");
}

TEST_CASE("times of iterations", "[perf]") {
  const std::vector<double> us = {9, 1, 2, 3, 8, 3, 2, 1};  // of two threads
  const IterationTimes times = iteration_times(us, 4, 1);
  CHECK(times.each == std::vector<double>{9, 3, 2, 3});
  CHECK(times.threads.size() == 2);
  CHECK(times.min == 2);
  CHECK(times.max == 3);
  CHECK(times.p50 == 3);
  CHECK(times.p99 == 3);
  CHECK(std::abs(times.mean - 8.0 / 3) < 1e-6);
  CHECK(std::abs(times.deviation_percent() - 17.677669) < 1e-4);
  Measured measured = {12.5, 5.24, 5.24, 0};
  measured.iterations = times;
  CHECK(half(measured) == "    12.50    5.24    5.24       0     2.00     3.00     3.00    17.68");
}

TEST_CASE("the footer tells what failed", "[perf]") {
  Summary summary;
  summary.bus_bandwidth = 4.5;
  CHECK(footer(summary, "x_perf") ==
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 4.5 \n#\n"
        "# Collective test concluded: x_perf\n#\n");
  summary.out_of_bounds = 2;
  summary.min_bandwidth = 6;
  CHECK_FALSE(summary.fast_enough());
  CHECK(footer(summary, "x_perf") ==
        "# Out of bounds values : 2 FAILED\n# Avg bus bandwidth    : 4.5 FAILED\n#\n"
        "# Collective test concluded: x_perf\n#\n");
}

TEST_CASE("how compressed calls went counts those of both halves", "[perf]") {
  Ways ways = {20, 0, {"topk_gather"}, {}};
  CHECK(how_it_went(ways) == "compressed by topk_gather");
  ways.add({20, 3, {"topk_split"}, {"ring"}});
  CHECK(how_it_went(ways) ==
        "bypassed 3 of 40, sent dense by ring; the others compressed by topk_gather and "
        "topk_split");
  CHECK(how_it_went({20, 20, {}, {"ring"}}) == "bypassed, sent dense by ring");
}
