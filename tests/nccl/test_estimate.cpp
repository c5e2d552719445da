// What the model says of calls, where somebody has measured two libraries' messages.
#include "catch.hpp"
#include "nccl/estimate.hpp"

using namespace pith;
using nccl::Lines;

namespace {

Shape shape_of(std::size_t bytes, int ranks = 4) {
  Shape shape;
  shape.ranks = ranks;
  shape.bytes = bytes;
  return shape;
}

}  // namespace

TEST_CASE("PITH_NCCL_FALLBACK_LINES", "[nccl]") {
  const auto lines = Lines::read("20:10,15.5:0.5");
  REQUIRE(lines);
  CHECK(lines->here.alpha == Approx(20e-6));
  CHECK(lines->here.beta == Approx(1e-10));
  CHECK(lines->there.alpha == Approx(15.5e-6));
  CHECK(lines->there.beta == Approx(2e-9));
  for (const char* wrong : {"20:10", "20:10,15", "20,10,15,20", "0:10,15:22", "20:10,15:22,",
                            "20:-1,15:22", "20:10;15:22", ":10,15:22", "20:x,15:22", "nan:1,1:1"}) {
    CAPTURE(wrong);
    CHECK(Lines::read(wrong).error().code() == Code::invalid_argument);
  }
}

TEST_CASE("short calls go to the library with the quick messages, long ones to the wide one",
          "[nccl]") {
  const Lines lines = *Lines::read("5:1,50:20");
  for (const Collective collective :
       {Collective::allreduce, Collective::broadcast, Collective::allgather, Collective::reduce,
        Collective::reduce_scatter, Collective::alltoall, Collective::gather,
        Collective::scatter}) {
    CAPTURE(name_of(collective));
    CHECK_FALSE(is_faster_there(lines, shape_of(64), collective));
    CHECK(is_faster_there(lines, shape_of(std::size_t{64} << 20), collective));
  }
}

TEST_CASE("of equal lines none is worth a change", "[nccl]") {
  const Lines lines = *Lines::read("10:10,10:10");
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 20}) {
    CHECK_FALSE(is_faster_there(lines, shape_of(bytes), Collective::allreduce));
  }
}

TEST_CASE("without measurements shared memory is taken for quicker than sockets", "[nccl]") {
  Shape shape = shape_of(1 << 20);
  const double by_sockets =
      nccl::seconds_here(shape, Collective::allreduce, nccl::guessed_link(shape));
  shape.views = true;
  const double by_memory =
      nccl::seconds_here(shape, Collective::allreduce, nccl::guessed_link(shape));
  CHECK(by_memory > 0);
  CHECK(2 * by_memory < by_sockets);
}
