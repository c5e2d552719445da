// How DEFT cuts, shares and packs, by hand; whole calls are in tests/collectives/test_deft.cpp.
#include "compress/deft/plan.hpp"

#include <utility>
#include <vector>

#include "compress/compressor.hpp"
#include "compress/host_slice.hpp"
#include "tests/catch.hpp"

namespace pith::test {

namespace {

std::vector<DeftPiece> pieces_of(const std::vector<std::pair<std::size_t, double>>& all) {
  std::vector<DeftPiece> pieces;
  for (const auto& [size, norm] : all) {
    DeftPiece& piece = pieces.emplace_back();
    piece.size = size;
    piece.norm = norm;
  }
  return pieces;
}

std::vector<std::size_t> shares(std::vector<DeftPiece> pieces, std::size_t k) {
  std::vector<std::uint32_t> order(pieces.size());
  share_deft(pieces, k, order);
  std::vector<std::size_t> found;
  for (const DeftPiece& piece : pieces) found.push_back(piece.k);
  return found;
}

}  // namespace

TEST_CASE("what is more than a rank's share is cut", "[deft]") {
  CHECK(deft_pieces(100, 100, 1) == 1);
  CHECK(deft_pieces(100, 100, 4) == 4);
  CHECK(deft_pieces(25, 100, 4) == 1);
  CHECK(deft_pieces(26, 100, 4) == 4);
  CHECK(deft_pieces(3, 3, 8) == 3);
  CHECK(deft_pieces(0, 100, 4) == 0);
}

TEST_CASE("k goes by norm, at least one and at most all", "[deft]") {
  CHECK(shares(pieces_of({{100, 1}, {100, 3}}), 40) == std::vector<std::size_t>{10, 30});
  // What the first has no room for is left to the second.
  CHECK(shares(pieces_of({{5, 9}, {100, 1}}), 50) == std::vector<std::size_t>{5, 45});
  CHECK(shares(pieces_of({{10, 0}, {10, 0}}), 8) == std::vector<std::size_t>{1, 1});
  CHECK(shares(pieces_of({{10, 1}, {10, 1}, {10, 1}}), 1) == std::vector<std::size_t>{1, 1, 1});
  // What is left is shared by the small ones, however much smaller.
  CHECK(shares(pieces_of({{1000, 1e-25}, {5, 1e25}, {1000, 3e-25}}), 45) ==
        std::vector<std::size_t>{10, 5, 30});
}

TEST_CASE("the most costly piece goes to the emptiest bin", "[deft]") {
  std::vector<DeftPiece> pieces = pieces_of({{10, 0}, {40, 0}, {25, 0}, {4, 0}});
  pieces[0].k = pieces[1].k = pieces[2].k = 1;
  pieces[3].k = 4;
  std::vector<std::uint32_t> order(4);
  std::vector<double> loads(2);
  pack_deft(pieces, order, loads);
  CHECK(pieces[1].bin == 0);
  CHECK(pieces[2].bin == 1);
  CHECK(pieces[0].bin == 1);
  CHECK(pieces[3].bin == DeftPiece::common);
  CHECK(loads == std::vector<double>{40, 35});
}

TEST_CASE("DEFT and hierarchy=host have an implementation", "[deft]") {
  CHECK(Compressor::create("deft:density=0.01"));
  CHECK(Compressor::create("topk:hierarchy=host"));
}

TEST_CASE("what a host's residual was before a call comes back", "[by-host]") {
  HostSlice slice(*Spec::parse("topk:hierarchy=host"), 3, 2);
  CHECK_FALSE(slice.inner().spec().by_host);
  const auto end_with = [&](std::uint32_t call, float value) {
    slice.open(call);
    slice.inner().begin(call, {});
    slice.inner().accumulator()[0] = value;
    slice.end(slice.inner().stats);
  };
  CHECK(slice.residual() != nullptr);
  end_with(1, 5);
  end_with(2, 7);
  CHECK(slice.inner().accumulator()[0] == 7);
  slice.open(3);
  slice.restore();
  CHECK(slice.inner().accumulator()[0] == 7);
  slice.return_after(1);
  CHECK(slice.inner().accumulator()[0] == 5);
}

}  // namespace pith::test
