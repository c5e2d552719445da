#include "core/run_together.hpp"

#include <atomic>
#include <latch>
#include <stdexcept>

#include "catch.hpp"

using namespace pith;

namespace {

using Jobs = std::vector<std::function<Error()>>;

}  // namespace

TEST_CASE("jobs that wait for each other run together", "[threads]") {
  std::latch all(3);
  const auto meet = [&all]() -> Error {
    all.arrive_and_wait();
    return {};
  };
  for (const Error& error : run_together(Jobs(3, meet))) CHECK_FALSE(error);
  CHECK(run_together(Jobs()).empty());
}

TEST_CASE("each job has its own error, also what it throws", "[threads]") {
  const Jobs jobs = {
      [] { return Error(); },
      [] { return Error(Code::remote, "rank 1"); },
      []() -> Error { throw std::runtime_error("thrown"); },
      []() -> Error { throw std::bad_alloc(); },
  };
  const std::vector<Error> errors = run_together(jobs);
  REQUIRE(errors.size() == 4);
  CHECK_FALSE(errors[0]);
  CHECK(errors[1].code() == Code::remote);
  CHECK(errors[2].code() == Code::internal);
  CHECK(errors[2].message() == std::string("thrown"));
  CHECK(errors[3].code() == Code::system);
}

TEST_CASE("a failure goes before what has begun", "[threads]") {
  const Error begun(Code::in_progress, "begun");
  const Error failed(Code::remote, "failed");
  CHECK_FALSE(first_failure({}));
  CHECK(first_failure(std::vector<Error>{Error(), begun}).code() == Code::in_progress);
  CHECK(first_failure(std::vector<Error>{begun, failed, Error()}).code() == Code::remote);
}
