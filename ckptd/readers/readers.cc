#include "ckptd/readers/readers.h"

#include <utility>

#include "ckptd/sources/memory/memory_source.h"
#include "ckptd/sources/segment/segment_source.h"

namespace ckptd {

namespace fb = ckpt::fb;

namespace {

bool is_about_a_restore(const fb::MessageT& message) {
  return message.body.type == fb::MessageBody::OpenRestore ||
         message.body.type == fb::MessageBody::ReleaseWindow ||
         message.body.type == fb::MessageBody::LocatedRead ||
         message.body.type == fb::MessageBody::CloseRestore;
}

}  // namespace

Readers::Readers(Needs needs)
    : needs_(std::move(needs)),
      closing_(needs_.turn),
      holds_({.history = needs_.history,
              .turn = needs_.turn,
              .replies = needs_.replies,
              .is_draining = needs_.is_draining,
              .removes_commits = needs_.removes_commits}),
      restores_({.history = needs_.history,
                 .turn = needs_.turn,
                 .replies = needs_.replies,
                 .sessions = needs_.sessions,
                 .numbers = numbers_,
                 .closing = closing_,
                 .holds = holds_,
                 .sources = sources_,
                 .context = [this] { return restore_context(); },
                 .is_draining = needs_.is_draining,
                 .earlier_snapshots = needs_.earlier_snapshots,
                 .on_reader_gone = needs_.on_reader_gone}),
      blob_lists_({.history = needs_.history,
                   .replies = needs_.replies,
                   .earlier_snapshots = needs_.earlier_snapshots}),
      verifies_({.history = needs_.history,
                 .turn = needs_.turn,
                 .replies = needs_.replies,
                 .numbers = numbers_,
                 .closing = closing_,
                 .holds = holds_,
                 .context = [this] { return context(); },
                 .on_reader_gone = needs_.on_reader_gone,
                 .on_verified = needs_.on_verified}) {}

bool Readers::handle(const Session& session, const fb::MessageT& message) {
  if (is_about_a_restore(message)) holds_.progress(session.id);
  switch (message.body.type) {
    case fb::MessageBody::OpenRestore:
      restores_.open(session, *message.body.AsOpenRestore());
      return true;
    case fb::MessageBody::ReleaseWindow:
      restores_.release_window(session.id, *message.body.AsReleaseWindow());
      return true;
    case fb::MessageBody::LocatedRead:
      restores_.located_read(session.id, *message.body.AsLocatedRead());
      return true;
    case fb::MessageBody::CloseRestore:
      restores_.close(session.id, *message.body.AsCloseRestore());
      return true;
    case fb::MessageBody::ListBlobs:
      blob_lists_.list(session, *message.body.AsListBlobs());
      return true;
    case fb::MessageBody::HoldCommit:
      holds_.hold(session, *message.body.AsHoldCommit());
      return true;
    case fb::MessageBody::RenewHold:
      holds_.renew(session, *message.body.AsRenewHold());
      return true;
    case fb::MessageBody::ReleaseHold:
      holds_.release(session.id, message.body.AsReleaseHold()->hold);
      return true;
    default:
      return false;
  }
}

void Readers::open_sources() {
  // The order of this list is the order in which restores try the sources.
  sources_.add(std::make_unique<MemorySource>(needs_.staging()));
  sources_.add(std::make_unique<SegmentSource>(needs_.disk, needs_.segments()));
}

RestoreJobContext Readers::restore_context() {
  return {needs_.executor, needs_.staging(),        needs_.history.catalog(), sources_,
          &decoded_,       needs_.history.healer(), needs_.on_damage};
}

RestoreContext Readers::context() {
  return {needs_.disk,
          needs_.executor,
          needs_.staging(),
          needs_.segments(),
          needs_.history.catalog(),
          &decoded_,
          needs_.history.healer()};
}

Restores::Jobs Readers::session_lost(ckpt::SessionId session) {
  Restores::Jobs restores = restores_.session_lost(session);
  holds_.session_lost(session);
  return restores;
}

void Readers::close_lost(ckpt::SessionId session, Restores::Jobs restores,
                         const std::function<void()>& then) {
  verifies_.session_lost(session);
  needs_.on_reader_gone();
  restores_.close_lost(std::move(restores), then);
}

void Readers::close() {
  restores_.close_all();
  verifies_.close_all();
}

}  // namespace ckptd
