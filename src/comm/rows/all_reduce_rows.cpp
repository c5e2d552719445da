#include "comm/rows/all_reduce_rows.hpp"

#include <cstdint>
#include <span>
#include <vector>

#include "comm/group.hpp"

namespace pith {

namespace {

Bytes bytes_of(const void* data) {
  return {static_cast<std::byte*>(const_cast<void*>(data)), 0, MemoryKind::host};
}

// Exchanges what a reduction makes, by calls of the communicator.
class RowExchange {
 public:
  RowExchange(const std::shared_ptr<Communicator>& communicator, const RowsGiven& given)
      : communicator_(communicator),
        reduction_(given, communicator->rank(), communicator->size()) {}

  Error run(const RowsWanted& wanted) {
    Error error = tell();
    if (!error) error = add();
    if (!error) error = gather();
    return error ? error : reduction_.write(wanted);
  }

 private:
  Error run_alone(Collective collective, const void* send, void* recv, std::size_t each) {
    Group group;
    CollectiveArgs args;
    args.collective = collective;
    args.send = bytes_of(send);
    args.recv = bytes_of(recv);
    args.count = each;
    args.type = DType::u8;
    group.add(communicator_, args, nullptr);
    return group.run();
  }

  // Sends out(rank) to every other rank, and receives as many rows of each as `counts` says.
  template <class Out>
  Error trade(const Out& out, std::span<const std::uint64_t> counts, std::vector<RowSet>& came) {
    for (std::size_t r = 0; r < counts.size(); ++r) {
      const bool is_own = static_cast<int>(r) == communicator_->rank();
      came.push_back(is_own ? RowSet() : reduction_.room(counts[r]));
    }
    Group group;
    for (const Message& message : reduction_.messages(out, came)) {
      group.add(communicator_, message, nullptr);
    }
    return group.empty() ? Error() : group.run();
  }

  Error tell() {
    const std::vector<RowsTold> mine = reduction_.told();
    std::vector<RowsTold> told(mine.size());
    Error error = run_alone(Collective::alltoall, mine.data(), told.data(), sizeof(RowsTold));
    return error ? error : reduction_.hear(std::move(told));
  }
  Error add() {
    std::vector<RowSet> came;
    const auto out = [this](int rank) -> const RowSet& { return reduction_.own(rank); };
    Error error = trade(out, reduction_.counts(), came);
    return error ? error : revoke_after(reduction_.add(came));
  }
  Error gather() {
    const std::uint64_t own = reduction_.sums().numbers.size();
    std::vector<std::uint64_t> counts(static_cast<std::size_t>(communicator_->size()));
    Error error = run_alone(Collective::allgather, &own, counts.data(), sizeof own);
    if (error) return error;
    std::vector<RowSet> came;
    const auto out = [this](int) -> const RowSet& { return reduction_.sums(); };
    error = trade(out, counts, came);
    return error ? error : revoke_after(reduction_.join(came));
  }
  // Of what other ranks do not find.
  Error revoke_after(Error error) const {
    if (error) communicator_->abort();
    return error;
  }

  std::shared_ptr<Communicator> communicator_;
  RowReduction reduction_;
};

}  // namespace

Error all_reduce_rows(const std::shared_ptr<Communicator>& communicator, const RowsGiven& given,
                      const RowsWanted& wanted) {
  try {
    return RowExchange(communicator, given).run(wanted);
  } catch (...) {
    communicator->abort();
    throw;
  }
}

}  // namespace pith
