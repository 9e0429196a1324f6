// What becomes of a range that is published, and what those who are attached hear of it.
#include <poll.h>

#include "cuvmm/cuvmm.hpp"
#include "raw_packets.hpp"
#include "sharing/content.hpp"
#include "sharing/shared_range_fixture.hpp"

namespace cuvmm::sharing {
namespace {

using namespace test;

class RangeChanges : public SharedRange {
 protected:
  // Three chunks of 2 MiB, the second of which is a hole.
  MappedRange range_with_hole() {
    auto range = new_range(3);
    range.unmap(2_MiB, 2_MiB);
    copy_to_device(range, 4_MiB, std::string("behind the hole"));
    return range;
  }
};

TEST_F(RangeChanges, AHoleThatIsFilledIsAnnouncedAndFollowed) {
  auto range = range_with_hole();
  auto published = publisher_.publish("range", range);
  auto attached = attach();
  const DeviceAddress address = attached.address();
  range.map(2_MiB, 2_MiB);
  copy_to_device(range, 2_MiB, std::string("in the hole"));
  EXPECT_FALSE(attached.poll()) << "it is not offered yet";
  published.update(range);
  EXPECT_EQ(published.chunks(), 3U);
  EXPECT_EQ(attached.wait(soon()), RangeNews{.grown = true});
  EXPECT_EQ(attached.follow(soon()), 6_MiB);
  EXPECT_EQ(attached.address(), address);
  EXPECT_EQ(bytes_at(attached.range(), 2_MiB, 11), "in the hole");
  EXPECT_EQ(bytes_at(attached.range(), 4_MiB, 15), "behind the hole");
  EXPECT_EQ(machine_.rights(address + 2_MiB, Location::device(DeviceOrdinal(0))), AccessRights::read);
  EXPECT_TRUE(is_attached(published, 3));
  EXPECT_FALSE(attached.poll());
  const auto later = attach();
  EXPECT_EQ(later.range().chunks().size(), 3U);
  EXPECT_EQ(bytes_at(later.range(), 2_MiB, 11), "in the hole");
}

TEST_F(RangeChanges, AHoleThatIsFilledAndGrowthAreFollowedTogetherOrNotAtAll) {
  auto range = range_with_hole();
  auto published = publisher_.publish("range", range);
  auto attached = attach({.capacity = 16_MiB});
  range.append(2_MiB);
  range.map(2_MiB, 2_MiB);
  published.update(range);
  ASSERT_TRUE(attached.wait(soon()).grown);
  const auto alive = machine_.alive();
  for (const auto& [entry, call] :
       std::vector<std::pair<EntryPoint, std::uint64_t>>{{EntryPoint::cuMemImportFromShareableHandle, 2},
                                                         {EntryPoint::cuMemMap, 1},
                                                         {EntryPoint::cuMemMap, 2},
                                                         {EntryPoint::cuMemSetAccess, 2}}) {
    machine_.faults().clear();
    machine_.fail(entry, call, abi::CUDA_ERROR_UNKNOWN);
    EXPECT_FALSE(attached.try_follow(soon())) << driver::name(entry);
    EXPECT_EQ(machine_.alive(), alive) << driver::name(entry) << " " << call;
    EXPECT_EQ(attached.range().chunks().size(), 2U);
  }
  machine_.faults().clear();
  EXPECT_EQ(attached.follow(soon()), 8_MiB);
  EXPECT_EQ(attached.range().chunks().size(), 4U);
}

TEST_F(RangeChanges, AContentThatIsShortenedIsAnnouncedAndFollowed) {
  auto range = new_range(2);
  auto published = publisher_.publish("range", range);
  auto attached = attach();
  range.truncate(3_MiB);  // no chunk lies behind that, so that none is unmapped
  published.update(range);
  EXPECT_EQ(published.size(), 3_MiB);
  EXPECT_EQ(attached.wait(soon()), RangeNews{.shortened = true});
  EXPECT_EQ(attached.size(), 4_MiB) << "until it is followed";
  EXPECT_EQ(attached.follow(soon()), 3_MiB);
  EXPECT_EQ(attached.size(), 3_MiB);
  EXPECT_EQ(attached.range().chunks().size(), 2U) << "the pages are still there";
  EXPECT_FALSE(attached.poll());
  range.append(1_MiB);
  published.update(range);
  EXPECT_EQ(attached.wait(soon()), RangeNews{.grown = true});
  EXPECT_EQ(attached.follow(soon()), 4_MiB);
  published.update(range);
  EXPECT_FALSE(attached.poll()) << "nothing has changed";
}

TEST_F(RangeChanges, AHoleAtTheEndMayBecomeShorterAndBeFilled) {
  auto range = new_range(3);
  range.unmap(4_MiB, 2_MiB);
  auto published = publisher_.publish("range", range);
  auto attached = attach();
  EXPECT_EQ(attached.size(), 6_MiB);
  range.truncate(5_MiB);
  published.update(range);
  ASSERT_TRUE(attached.wait(soon()).shortened);
  EXPECT_EQ(attached.follow(soon()), 5_MiB);
  range.map(4_MiB, 2_MiB);
  published.update(range);
  ASSERT_TRUE(attached.wait(soon()).grown);
  EXPECT_EQ(attached.follow(soon()), 6_MiB);
  EXPECT_EQ(attached.range().chunks().size(), 3U);
}

// The pin stands against it; whoever passes over the pin withdraws the range by that.
TEST_F(RangeChanges, WhatIsUnmappedInSpiteOfThePinIsWithdrawn) {
  auto memory = SleepableMemory::create(machine_.driver());
  auto sleeper = memory.add("group", new_range(1));
  auto published = publisher_.publish("range", sleeper.range());
  auto attached = attach();
  EXPECT_THROW(memory.sleep("group"), InvalidUse) << "it is pinned";
  EXPECT_FALSE(attached.poll());
  memory.sleep("group", {.despite_pins = true});
  EXPECT_EQ(attached.wait(soon()), RangeNews{.withdrawn = Withdrawal::ended});
  refusal_of(ErrorKind::invalid_use, [&] { return try_attach(); });
  memory.wake("group");
  refusal_of(ErrorKind::invalid_use, [&] { return published.try_update(sleeper.range()); });
  attached.detach();
  published.withdraw(soon());
  const auto again = publisher_.publish("range", sleeper.range());
  EXPECT_EQ(attach().generation(), 2U);
}

TEST_F(RangeChanges, WhatAnotherObserverKeepsFromBeingUnmappedStaysPublished) {
  auto memory = SleepableMemory::create(machine_.driver());
  auto sleeper = memory.add("group", new_range(1));
  auto published = publisher_.publish("range", sleeper.range());
  auto attached = attach();
  {
    const auto observation =
        sleeper.range().observe({.before_unmap = [](std::size_t, std::size_t) { throw std::runtime_error("in use"); }});
    EXPECT_THROW(memory.sleep("group", {.despite_pins = true}), std::runtime_error);
  }
  EXPECT_FALSE(sleeper.asleep());
  EXPECT_FALSE(attached.poll());
  EXPECT_TRUE(try_attach());
  EXPECT_TRUE(published.try_update(sleeper.range()));
  memory.sleep("group", {.despite_pins = true});
  EXPECT_EQ(attached.wait(soon()), RangeNews{.withdrawn = Withdrawal::ended});
}

TEST_F(RangeChanges, OnlyWhatIsPublishedIsWithdrawn) {
  auto memory = SleepableMemory::create(machine_.driver());
  auto one = memory.add("one", new_range(1));
  auto other = memory.add("other", new_range(1));
  const auto published = publisher_.publish("range", one.range());
  auto attached = attach();
  memory.sleep("other");
  EXPECT_TRUE(try_attach());
  EXPECT_FALSE(attached.poll());
}

TEST_F(RangeChanges, ARangeThatIsDestroyedBeforeItsPublicationIsWithdrawn) {
  auto range = std::make_optional(new_range(1));
  auto published = publisher_.publish("range", *range);
  copy_to_device(*range, 0, std::string("they stay"));
  auto attached = attach();
  range.reset();
  EXPECT_EQ(attached.wait(soon()), RangeNews{.withdrawn = Withdrawal::ended});
  EXPECT_EQ(bytes_at(attached.range(), 0, 9), "they stay");
  attached.detach();
  EXPECT_TRUE(published.try_withdraw(soon()));
}

TEST_F(RangeChanges, APublicationThatIsDestroyedIsWithdrawnAndNothingElse) {
  auto range = new_range(2);
  for (int round = 0; round < 20; ++round) {
    auto published = std::make_optional(publisher_.publish("range", range));
    auto attached = attach();
    published.reset();
    EXPECT_EQ(attached.wait(soon()), RangeNews{.withdrawn = Withdrawal::ended});
    EXPECT_GE(attached.descriptor(), 0);
    EXPECT_EQ(attached.size(), 4_MiB);
  }
}

TEST_F(RangeChanges, FollowingAfterAWithdrawalSaysWhatTheAttachedPartyIsToDo) {
  auto range = new_range(1);
  for (const auto why : {Withdrawal::ended, Withdrawal::sleep, Withdrawal::replaced}) {
    auto published = publisher_.publish("range", range);
    auto attached = attach();
    EXPECT_EQ(attached.follow(soon()), 2_MiB) << "there is nothing to follow";
    EXPECT_FALSE(published.try_withdraw(Deadline::in(1ms), why));
    EXPECT_EQ(attached.wait(soon()), RangeNews{.withdrawn = why});
    const auto failure = refusal_of(ErrorKind::invalid_use, [&] { return attached.try_follow(soon()); });
    const std::string text = failure.message();
    EXPECT_NE(text.find("withdrawn: " + std::string(to_string(why))), std::string::npos) << text;
    EXPECT_NE(text.find("AttachedRange::detach()"), std::string::npos) << text;
    EXPECT_EQ(text.find("wait_for_publisher") != std::string::npos, why != Withdrawal::ended) << text;
    EXPECT_EQ(text.find("Publish it"), std::string::npos) << "that is for the publisher: " << text;
    attached.detach();
    EXPECT_TRUE(published.try_withdraw(soon()));
  }
}

TEST_F(RangeChanges, FollowingAfterThePublisherHasEndedSaysSo) {
  auto range = new_range(1);
  auto publisher = std::make_optional(RangePublisher::unconnected());
  auto published = std::make_optional(publisher->publish("range", range));
  auto [one, other] = DescriptorSocket::pair();
  publisher->serve(std::move(one));
  auto attached = AttachedRange::attach(machine_.driver(), std::move(other), "range", {}, soon());
  EXPECT_EQ(attached.follow(soon()), 2_MiB);
  published.reset();
  publisher.reset();
  const auto news = attached.wait(soon());
  EXPECT_TRUE(news.publisher_gone || news.withdrawn);
  EXPECT_TRUE(becomes_true([&] { return attached.poll().publisher_gone; }));
  EXPECT_EQ(attached.descriptor(), -1);
  EXPECT_FALSE(attached.try_follow(soon()));
}

// A publisher that says what it likes once somebody has attached.
class FalseAnnouncements : public SharedRange {
 protected:
  FalseAnnouncements() {
    auto [one, other] = DescriptorSocket::pair();
    publisher_end_.emplace(std::move(one));
    std::jthread answering([&] {
      for (const auto& [kind, bytes] : {std::pair{terms_message, encode(Terms{standing_, AccessRights::read})},
                                        std::pair{chunks_message, encode(ChunkTable{5, 0, {{0, one_chunk}}})}}) {
        const Message request = publisher_end_->receive(soon());
        const std::vector<int> beside(kind == chunks_message ? 1 : 0, handle_.descriptor());
        publisher_end_->reply(request, {.kind = kind, .bytes = bytes, .descriptors = beside}, soon());
      }
      static_cast<void>(publisher_end_->receive(soon()));  // what is mapped
    });
    attached_.emplace(AttachedRange::attach(machine_.driver(), std::move(other), "range", {.capacity = 8_MiB}, soon()));
  }

  // As it is: a packet of the transport's own kinds, too.
  void say(MessageKind kind, const Bytes& content, bool is_reply = false, std::uint32_t number = 0) {
    PacketHeader header = only_packet(content.size());
    header.kind = kind;
    header.is_reply = is_reply;
    header.number = number;
    send_raw(publisher_end_->descriptor(), packet_of(header, content));
  }

  // It is told as gone, at once and for good, and an event loop has nothing to wait for any more.
  void expect_gone() {
    EXPECT_EQ(attached_->wait(soon()), RangeNews{.publisher_gone = true});
    EXPECT_EQ(attached_->descriptor(), -1);
    EXPECT_EQ(attached_->poll(), RangeNews{.publisher_gone = true});
    EXPECT_EQ(attached_->wait(soon()), RangeNews{.publisher_gone = true});
    const auto failure = refusal_of(ErrorKind::peer_gone, [&] { return attached_->try_follow(soon()); });
    reason_ = failure.message();
    EXPECT_EQ(attached_->size(), one_chunk) << "what is mapped stays";
    EXPECT_TRUE(publisher_end_->try_receive(soon()).failure().kind != ErrorKind::timed_out) << "it sees the end";
  }

  static Bytes failure_of(ErrorKind kind) {
    Failure failure;
    failure.kind = kind;
    failure.call = "somebody";
    failure.reason = "for a reason of its own";
    return encode(failure);
  }

  const Standing standing_{.publication = 5, .generation = 1, .bytes = 2_MiB, .extent = 2_MiB, .chunks = 1};
  MappedRange range_ = new_range(1);
  ShareableHandle handle_ =
      ShareableHandle::export_from(range_.memory_at(0).memory(), HandleType::posix_file_descriptor);
  std::optional<DescriptorSocket> publisher_end_;
  std::optional<AttachedRange> attached_;
  std::string reason_;
};

TEST_F(FalseAnnouncements, AreHeardWhereAllIsInOrder) {
  Standing next = standing_;
  next.bytes = 1_MiB;
  say(standing_message, encode(next));
  EXPECT_EQ(attached_->wait(soon()), RangeNews{.shortened = true});
  EXPECT_GE(attached_->descriptor(), 0);
  EXPECT_EQ(attached_->follow(soon()), 1_MiB);
}

TEST_F(FalseAnnouncements, AFailureThatThePeerSentIsItsEnd) {
  say(failure_kind, failure_of(ErrorKind::not_permitted));
  expect_gone();
  EXPECT_NE(reason_.find("for a reason of its own"), std::string::npos) << reason_;
}

// Which is not that nothing came in time.
TEST_F(FalseAnnouncements, ATimeOutThatThePeerTellsIsItsEnd) {
  say(failure_kind, failure_of(ErrorKind::timed_out));
  expect_gone();
  EXPECT_NE(reason_.find("for a reason of its own"), std::string::npos) << reason_;
}

TEST_F(FalseAnnouncements, AFailureThatAnswersNothingThatWasAskedIsItsEnd) {
  say(failure_kind, failure_of(ErrorKind::timed_out), true, 1'000'000);
  expect_gone();
}

TEST_F(FalseAnnouncements, AFailureThatCannotBeReadIsItsEnd) {
  say(failure_kind, Bytes(3));
  expect_gone();
}

TEST_F(FalseAnnouncements, AMessageThatIsNoNewsIsItsEnd) {
  say(first_free_kind, {});
  expect_gone();
}

TEST_F(FalseAnnouncements, ChunksThatAreTakenBackAreItsEnd) {
  Standing next = standing_;
  next.chunks = 0;
  say(standing_message, encode(next));
  expect_gone();
}

TEST_F(FalseAnnouncements, AWithdrawalThatIsTakenBackIsItsEnd) {
  Standing next = standing_;
  next.withdrawn = Withdrawal::sleep;
  say(standing_message, encode(next));
  EXPECT_EQ(attached_->wait(soon()), RangeNews{.withdrawn = Withdrawal::sleep});
  say(standing_message, encode(standing_));
  EXPECT_TRUE(becomes_true([&] { return attached_->poll().publisher_gone; }));
  EXPECT_EQ(attached_->poll().withdrawn, Withdrawal::sleep) << "what was told stays told";
  EXPECT_EQ(attached_->descriptor(), -1);
}

TEST_F(FalseAnnouncements, ChunksThatAreNotThoseAnnouncedAreItsEnd) {
  Standing next = standing_;
  next.chunks = 2;
  next.bytes = next.extent = 4_MiB;
  say(standing_message, encode(next));
  ASSERT_TRUE(attached_->wait(soon()).grown);
  std::jthread answering([&] {
    const Message request = publisher_end_->receive(soon());
    const auto table = encode(ChunkTable{5, 1, {{0, one_chunk}}});  // over the one that is mapped
    const std::vector<int> beside{handle_.descriptor()};
    publisher_end_->reply(request, {.kind = chunks_message, .bytes = table, .descriptors = beside}, soon());
  });
  refusal_of(ErrorKind::protocol_violation, [&] { return attached_->try_follow(soon()); });
  answering.join();
  EXPECT_TRUE(attached_->poll().publisher_gone);
  EXPECT_EQ(attached_->descriptor(), -1);
  EXPECT_EQ(attached_->range().mapped_bytes(), one_chunk);
}

// Who may not write is told whose choice that was.
TEST_F(RangeChanges, AStoreThroughAReadOnlyAttachmentSaysHowToGetMore) {
  auto range = new_range(1);
  const auto published = publisher_.publish("range", range, {.rights = AccessRights::read_write});
  const auto way_out_of_store_to = [&](const MappedRange& written) {
    try {
      copy_to_device(written, 0, std::string("a store"));
      return std::string();
    } catch (const InvalidUse& error) {
      return error.way_out();
    }
  };
  const std::string way_out = way_out_of_store_to(attach().range());
  EXPECT_NE(way_out.find("AttachOptions::rights"), std::string::npos) << way_out;
  EXPECT_NE(way_out.find("PublishOptions::rights"), std::string::npos) << way_out;
  EXPECT_EQ(way_out_of_store_to(attach({.rights = AccessRights::read_write}).range()), "") << "it is written";
  auto without =
      MappedRange::create(machine_.driver(), {.grants = {{Location::device(DeviceOrdinal(1)), AccessRights::read}}});
  without.append(2_MiB);
  const std::string other = way_out_of_store_to(without);
  EXPECT_NE(other, "");
  EXPECT_EQ(other.find("AttachOptions"), std::string::npos) << "nothing is granted to this device: " << other;
}

}  // namespace
}  // namespace cuvmm::sharing
