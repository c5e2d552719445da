// What ranks tell each other before they connect: their transports' addresses, where they run,
// which CPUs they may use.
#include "fuzz_target.hpp"
#include "startup/blob.hpp"
#include "startup/locality.hpp"
#include "startup/peer_info.hpp"

namespace pith::fuzz {

void run(std::span<const std::uint8_t> input) {
  constexpr std::size_t most = 64;
  std::vector<std::string> blobs = split_strings(text_of(input));
  if (blobs.size() > most) blobs.resize(most);
  std::vector<Locality> places;
  std::vector<UsableCores> cores;
  for (const std::string& blob : blobs) {
    const PeerInfo one = PeerInfo::unpack(blob);
    expect(PeerInfo::unpack(one.pack()).pack() == one.pack());
    places.push_back(Locality::unpack(one.locality));
    expect(Locality::unpack(places.back().pack()).pack() == places.back().pack());
    cores.push_back(one.cores);
  }
  if (blobs.empty()) return;
  RankGroups groups(blobs.size());
  groups.join(0, blobs.size() - 1);
  const RankOrder order = order_by_locality(places, groups);
  std::vector<int> ranks;
  for (std::size_t place = 0; place < blobs.size(); ++place) {
    ranks.push_back(order.rank_at(static_cast<int>(place)));
  }
  std::sort(ranks.begin(), ranks.end());
  for (std::size_t r = 0; r < ranks.size(); ++r) expect(ranks[r] == static_cast<int>(r));
  static_cast<void>(are_oversubscribed(cores));
}

std::vector<std::string> seeds() {
  std::vector<std::string> blobs;
  for (int rank = 0; rank < 3; ++rank) {
    PeerInfo one;
    one.settings = "a=1\nb=2";
    one.addresses = {"", "pith-0011", std::string(40, 'u'), "127.0.0.1:4000"};
    Locality place;
    place.host = rank == 2 ? "there" : "here";
    place.package = rank;
    one.locality = place.pack();
    one.cores.mask = {3, std::uint64_t{1} << rank};
    one.cores.limit = static_cast<std::uint32_t>(rank);
    blobs.push_back(one.pack());
  }
  return {join_strings(blobs), join_strings({blobs[0]}), join_strings({"", blobs[1]})};
}

}  // namespace pith::fuzz
