#include "core/executor/tile_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace attend {

namespace {

// Units of less are taken several at a time, up to this much: some 20 microseconds' work, a hundred
// times what taking them costs.
constexpr std::int64_t kWorthTaking = std::int64_t{1} << 20;

}  // namespace

// A job in the queue.
struct TileQueue::Entry {
  TileJob* job = nullptr;
  double weight = 1;
  FairShare* share = nullptr;
  std::uint64_t number = 0;  // jobs that stand at the same time go in the order in which they came
  bool begun = false;        // units of it have been taken
  double claim = 0;          // its start time
  int stage = 0;
  std::int64_t unit_cost = 1;  // of the stage
  std::int64_t num_units = 0;  // of the stage
  std::int64_t next = 0;       // the first that nobody has taken
  std::int64_t left = 0;       // those that have not run
  std::list<Entry>::iterator self;
  Ready::node_type parked;  // its place among the ready, while it is not one of them
};

TileQueue::TileQueue(int threads) : threads_(threads) {}
TileQueue::~TileQueue() = default;

bool TileQueue::IsShort(const Entry& entry) { return entry.unit_cost <= kShortUnitCost; }

bool TileQueue::Earlier::operator()(const Entry* a, const Entry* b) const {
  return std::tie(a->claim, a->number) < std::tie(b->claim, b->number);
}

std::uint64_t TileQueue::Add(TileJob& job, const JobOptions& options) {
  Entry added;
  added.job = &job;
  if (!EnterStage(added, 0)) return 0;
  added.weight = options.weight;
  added.share = options.share;
  added.claim = options.share != nullptr ? std::max(now_, options.share->claim_) : now_;
  added.number = ++last_number_;
  entries_.push_back(std::move(added));
  Entry& entry = entries_.back();
  entry.self = std::prev(entries_.end());
  try {
    ReadyOf(entry).insert(&entry);
  } catch (...) {
    entries_.pop_back();
    throw;
  }
  CountReady(entry, entry.num_units);
  return entry.number;
}

bool TileQueue::Remove(std::uint64_t number) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [number](const Entry& entry) { return entry.number == number; });
  if (found == entries_.end() || found->begun) return false;
  CountReady(*found, -found->num_units);
  ReadyOf(*found).erase(&*found);
  entries_.erase(found);
  return true;
}

bool TileQueue::EnterStage(Entry& entry, int stage) {
  for (; stage < entry.job->num_stages(); ++stage) {
    const std::int64_t units = entry.job->num_units(stage);
    if (units == 0) continue;
    entry.stage = stage;
    entry.unit_cost = std::max<std::int64_t>(1, entry.job->unit_cost(stage));
    entry.num_units = entry.left = units;
    entry.next = 0;
    return true;
  }
  return false;
}

void TileQueue::CountReady(const Entry& entry, std::int64_t units) {
  num_ready_ += units;
  if (IsShort(entry)) num_ready_short_ += units;
}

std::optional<TileQueue::Units> TileQueue::Pop() {
  if (ready_short_.empty() && ready_long_.empty()) return std::nullopt;
  const bool is_short =
      ready_long_.empty() ||
      (!ready_short_.empty() && Earlier()(*ready_short_.begin(), *ready_long_.begin()));
  return Take(is_short ? ready_short_ : ready_long_);
}

std::optional<TileQueue::Units> TileQueue::PopShort(double claim) {
  if (ready_short_.empty() || (*ready_short_.begin())->claim >= claim) return std::nullopt;
  return Take(ready_short_);
}

TileQueue::Units TileQueue::Take(Ready& ready) {
  // The node itself moves, so that nothing is allocated for a unit.
  Ready::node_type node = ready.extract(ready.begin());
  Entry& entry = *node.value();
  entry.begun = true;
  const std::int64_t left = entry.num_units - entry.next;
  const std::int64_t fair_part = std::max<std::int64_t>(1, left / (2 * threads_));
  const std::int64_t count = std::clamp<std::int64_t>(kWorthTaking / entry.unit_cost, 1, fair_part);
  now_ = std::max(now_, entry.claim);
  entry.claim += static_cast<double>(count) * static_cast<double>(entry.unit_cost) / entry.weight;
  if (entry.share != nullptr) entry.share->claim_ = std::max(entry.share->claim_, entry.claim);
  Units units{.entry = &entry,
              .job = entry.job,
              .stage = entry.stage,
              .begin = entry.next,
              .end = entry.next + count,
              .claim = entry.claim};
  entry.next += count;
  CountReady(entry, -count);
  if (entry.next < entry.num_units) {
    ready.insert(std::move(node));
  } else {
    entry.parked = std::move(node);
  }
  return units;
}

bool TileQueue::Done(const Units& units) {
  Entry& entry = *units.entry;
  entry.left -= units.end - units.begin;
  if (entry.left > 0) return false;
  if (!EnterStage(entry, entry.stage + 1)) {
    entries_.erase(entry.self);
    return true;
  }
  entry.claim = std::max(entry.claim, now_);
  CountReady(entry, entry.num_units);
  ReadyOf(entry).insert(std::move(entry.parked));
  return false;
}

}  // namespace attend
