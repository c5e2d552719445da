#include "catch.hpp"
#include "control/completed_calls.hpp"

using pith::call_number;
using pith::call_numbers;
using pith::CompletedCalls;

TEST_CASE("completed calls: those without a gap") {
  CompletedCalls calls;
  CHECK(calls.count() == 0);
  calls.add(1);
  calls.add(3);
  calls.add(5);
  calls.add(4);
  CHECK(calls.count() == 1);
  calls.add(2);
  CHECK(calls.count() == 5);
  calls.add(2);  // of long ago
  CHECK(calls.count() == 5);
}

// A blocking call may overtake any number of calls that wait in the background.
TEST_CASE("completed calls: many that overtake others") {
  CompletedCalls calls;
  for (std::uint32_t n = 500; n > 300; --n) calls.add(n);
  for (std::uint32_t n = 2; n <= 200; n += 2) calls.add(n);
  for (std::uint32_t n = 201; n <= 300; ++n) calls.add(n);
  CHECK(calls.count() == 0);
  for (std::uint32_t n = 1; n < 200; n += 2) calls.add(n);
  CHECK(calls.count() == 500);
}

TEST_CASE("call numbers go round without a zero") {
  CHECK(call_number(0) == 0);
  CHECK(call_number(1) == 1);
  CHECK(call_number(call_numbers) == call_numbers);
  CHECK(call_number(std::uint64_t{call_numbers} + 1) == 1);
  CHECK(pith::is_later(2, 1));
  CHECK_FALSE(pith::is_later(1, 1));
  CHECK(pith::is_later(1, call_numbers));
  CHECK_FALSE(pith::is_later(call_numbers, 1));
}

TEST_CASE("completed calls: the count goes on where the numbers begin again") {
  const std::uint64_t lap = call_numbers;
  CompletedCalls calls(2 * lap - 2);
  calls.add(call_number(2 * lap + 1));
  calls.add(call_number(2 * lap));
  CHECK(calls.count() == 2 * lap - 2);
  calls.add(call_number(2 * lap - 1));
  CHECK(calls.count() == 2 * lap + 1);
  calls.add(call_number(2 * lap));
  CHECK(calls.count() == 2 * lap + 1);
}
