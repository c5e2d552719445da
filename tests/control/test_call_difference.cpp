// What ranks disagree about, in words.
#include "control/call_difference.hpp"

#include "catch.hpp"
#include "collectives/compressed.hpp"
#include "control/call_recorder.hpp"

using namespace pith;

namespace {

template <class Args>
CallNote note_of(const Args& args, std::uint64_t digest = 1) {
  CallRecorder recorder;
  recorder.begin(1, digest, args);
  return *recorder.find(1);
}

CollectiveArgs sum_of(std::size_t count) {
  CollectiveArgs args;
  args.count = count;
  return args;
}

// The note of a compressed call of several tensors.
CallNote compressed(const char* spec, std::vector<std::size_t> counts, std::uint64_t digest = 1) {
  const Expected<std::unique_ptr<Compressor>> made = Compressor::create(spec);
  Compressor* const compressor = made->get();
  std::vector<CompressedTensor> tensors;
  for (const std::size_t count : counts) {
    CompressedTensor& tensor = tensors.emplace_back();
    tensor.compressor = compressor;
    tensor.count = count;
  }
  return note_of(tensors, digest);
}

}  // namespace

TEST_CASE("what differs between two calls is said in words", "[call-difference]") {
  CHECK(difference_of(note_of(sum_of(1000)), note_of(sum_of(1000))).empty());
  CHECK(difference_of(note_of(sum_of(1000)), note_of(sum_of(2000))) == "count 1000 against 2000");
  CollectiveArgs other = sum_of(1000);
  other.type = DType::f16;
  other.op = Op::max;
  CHECK(difference_of(note_of(sum_of(1000)), note_of(other)) ==
        "type float against half, op sum against max");
  CollectiveArgs scaled = sum_of(1000);
  scaled.factor.used = true;
  CHECK(note_of(scaled).text == "allreduce of 1000 float, premultiplied sum");
  CHECK(difference_of(note_of(scaled), note_of(sum_of(1000))) ==
        "op premultiplied sum against sum");
  CollectiveArgs rooted = sum_of(7);
  rooted.collective = Collective::broadcast;
  CHECK(difference_of(note_of(sum_of(1000)), note_of(rooted)) ==
        "collective allreduce against broadcast");
  CollectiveArgs from_three = rooted;
  from_three.root = 3;
  CHECK(difference_of(note_of(from_three), note_of(rooted)) == "root 3 against 0");
  CHECK(difference_of(note_of(from_three), {1, 2, "shrink"}).empty());
}

TEST_CASE("of long specs only what differs is said", "[call-difference]") {
  const CallNote one = compressed("topk:density=0.1", {500});
  const CallNote other = compressed("topk:density=0.2,values=bf16", {500});
  CHECK(one.text == "compressed allreduce of 500 float, sum, topk, step 0");
  CHECK(difference_of(one, other) ==
        "density=0.1 against density=0.2, values=f32 against values=bf16");
  CHECK(words_beside(one, other) ==
        "compressed allreduce of 500 float, sum, topk, step 0 (density=0.1,values=f32)");
  CHECK(words_beside(one, one) == one.text);
  const CallNote dense = compressed("none", {500});
  CHECK(difference_of(one, dense) == "compressor topk against none");
  CHECK(difference_of(one, note_of(sum_of(500))) ==
        "collective compressed allreduce against allreduce");
  CHECK(difference_of(compressed("none", {500, 1}, 1), compressed("none", {1, 500}, 2)) ==
        "one of their tensors in size, type, scale or matrices");
  CHECK(difference_of(compressed("none", {500, 1}), dense) ==
        "count 501 against 500, tensors 2 against 1");
}
