#include "collectives/exclusive_election.hpp"

#include <algorithm>
#include <cmath>

namespace pith {

namespace {

// Elements of one range above the threshold.
class Survivors {
 public:
  Survivors(Call& call, Compressor& compressor, Range range)
      : call_(call), compressor_(compressor) {
    const ExdynaControl& control = compressor.exdyna;
    const std::size_t expected = 4 * control.k() / ranks_of(call) + 1024;
    make_room(std::min(range.size, expected));
    PassResult result;
    const AccumulateKernel::Args added{
        compressor.accumulator() + range.begin, nullptr, DType::f32, range.size, false, &result};
    const bool is_added = control.own_is_added;
    select(is_added ? added : compressor.pass(range.begin, range.size, result), range);
    if (!is_added) {
      compressor.stats.nonfinite += result.nonfinite;
      compressor.stats.squares_all += result.squares;
    }
    if (count_ == result.selected) return;
    const std::size_t all = result.selected;
    put_back();
    make_room(all);
    select(added, range);
  }
  // All of them stay in the accumulator: they are taken when everybody's are known.
  void put_back() {
    call_.run<ReturnKernel>(
        {compressor_.accumulator(), indices(), values_.bytes().data, count_, DType::f32});
  }
  std::span<const float> values() const { return {floats(), count_}; }
  // Drops what is below the threshold, and all but the `most` largest.
  void keep(float threshold, std::size_t most) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      if (!(std::fabs(floats()[i]) >= threshold)) continue;
      indices()[kept] = indices()[i];
      floats()[kept++] = floats()[i];
    }
    count_ = std::min(kept, most);
    if (kept <= most || most == 0) return;
    float smallest = 0;
    double squares = 0;
    call_.run<KeepLargestKernel>({indices(), floats(), kept, most, nullptr, &smallest, &squares});
  }
  void move_to(PairList& list) const {
    list.reserve(count_);
    std::copy_n(indices(), count_, list.indices());
    list.end_run(count_);
  }

 private:
  void make_room(std::size_t room) {
    room_ = room;
    indices_ = Scratch(call_.compute(), std::max<std::size_t>(room, 1) * sizeof(std::uint32_t));
    values_ = Scratch(call_.compute(), std::max<std::size_t>(room, 1) * sizeof(float));
  }
  void select(const AccumulateKernel::Args& pass, Range range) {
    call_.run<SelectKernel>({pass, compressor_.exdyna.threshold().counts(),
                             static_cast<std::uint32_t>(range.begin), indices(), floats(), room_});
    count_ = std::min(pass.result->selected, room_);
  }
  std::uint32_t* indices() const { return reinterpret_cast<std::uint32_t*>(indices_.bytes().data); }
  float* floats() const { return reinterpret_cast<float*>(values_.bytes().data); }

  Call& call_;
  Compressor& compressor_;
  Scratch indices_;
  Scratch values_;
  std::size_t room_ = 0;
  std::size_t count_ = 0;
};

// How many of its partition a rank may still elect in this round.
std::size_t allowance(Call& call, const ExclusiveElection& election, Compressor& compressor,
                      std::size_t partition, std::size_t round) {
  const ExdynaControl& control = compressor.exdyna;
  if (control.has_dummy()) return control.most(partition);
  std::size_t elected = 0;
  for (std::size_t j = 0; j < round; ++j) {
    elected +=
        election.list(compressor, j, static_cast<std::size_t>(call.rank()), ranks_of(call)).count();
  }
  const std::size_t so_far = control.most(partition) * (round + 1) / election.rounds;
  return so_far > elected ? so_far - elected : 0;
}

}  // namespace

void elect(Call& call, const ExclusiveElection& election, Compressor& compressor,
           std::size_t round) {
  ExdynaControl& control = compressor.exdyna;
  const std::size_t partition = own_partition(call, compressor);
  Survivors survivors(call, compressor, election.range(compressor, partition, round));
  survivors.put_back();
  if (control.threshold().rule() == Rule::quantile) {
    control.own_levels.add(survivors.values(), control.threshold().lambda());
  }
  survivors.keep(control.threshold().elects(),
                 allowance(call, election, compressor, partition, round));
  PairList& list =
      election.list(compressor, round, static_cast<std::size_t>(call.rank()), ranks_of(call));
  const std::size_t size = control.partition().size(partition);
  survivors.move_to(list);
  if (!control.has_dummy() || size == 0 || list.count() > 0) return;
  list.begin(list.type());
  list.reserve(1);
  *list.indices() =
      static_cast<std::uint32_t>(control.partition().begin(partition) + compressor.step % size);
  list.end_run(1);
}

}  // namespace pith
