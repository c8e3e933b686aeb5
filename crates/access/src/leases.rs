//! Checks the lease that a call presents: signature, issuer, time and revocation.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::row_cache::RowCache;
use policy::{Lease, LeaseMode, LeaseStanding, MemoryProfile};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect};
use store::{
    Store, clock,
    entity::{audit, lease, lease_key},
};

/// Header of a request that carries a lease.
pub const LEASE_HEADER: &str = "cynode-lease";

/// The cache of verified texts is cleared beyond this size.
const MAX_VERIFIED: usize = 4096;
/// How long the key of another gateway is trusted before the store is asked again.
const TRUST_KEY_FOR: Duration = Duration::from_secs(5);

/// Checks leases against the store.
#[derive(Debug)]
pub struct Leases {
    mode: LeaseMode,
    /// `leases.lifetime`: the clock of another gateway may be ahead by less than that.
    lifetime: Duration,
    /// Texts whose signature is valid. Only leases of trusted keys are kept.
    verified: Mutex<HashMap<String, Lease>>,
    /// The key with which this gateway signs.
    own_key: String,
    /// Keys of other gateways on the store, and when they were found there.
    trusted: Mutex<HashMap<String, Instant>>,
    rows: RowCache<lease::Model>,
}

impl Leases {
    /// Registers the key with which this gateway signs, so that all gateways on the store accept its leases.
    pub async fn open(store: &Store, mode: LeaseMode, lifetime: Duration, key: &str) -> Result<Self, DbErr> {
        let row = lease_key::Model { key: key.to_owned(), created_at: clock::now() };
        let write = store.write().await?;
        let insert = lease_key::Entity::insert(lease_key::ActiveModel::from(row));
        insert.on_conflict_do_nothing().exec_without_returning(&*write).await?;
        write.commit().await?;
        // Rows of a node have the time of its clock, which may be far ahead.
        let newest = audit::Entity::find().filter(audit::Column::Node.is_null());
        let newest = newest.select_only().column_as(audit::Column::CreatedAt.max(), "latest");
        let newest: Option<Option<i64>> = newest.into_tuple().one(store.read()).await?;
        // The process before this one may have seen a later time.
        clock::latest(newest.flatten().unwrap_or_default());
        Ok(Self {
            mode,
            lifetime,
            verified: Mutex::default(),
            own_key: key.to_owned(),
            trusted: Mutex::default(),
            rows: RowCache::default(),
        })
    }

    /// Returns the standing of a presented lease now.
    pub async fn look_up(&self, store: &Store, text: Option<&str>) -> Result<LeaseStanding, DbErr> {
        let Some(text) = text else { return Ok(LeaseStanding::Absent(self.mode)) };
        let Some(lease) = self.verify(store, text).await? else { return Ok(LeaseStanding::Unknown) };
        let read = async || lease::Entity::find_by_id(&lease.lease_id).one(store.read()).await;
        let row = self.rows.get_or_read(store, &lease.lease_id, read).await?;
        let Some(row) = row else { return Ok(LeaseStanding::Unknown) };
        let profile = row.profile.as_deref().map(str::parse::<MemoryProfile>).transpose();
        let Ok(profile) = profile else { return Ok(LeaseStanding::Unknown) };
        // The signed text leaves out `default`.
        let lease = Lease { profile, ..lease };
        let now = clock::of_signed_lease(lease.not_before, self.lifetime);
        Ok(LeaseStanding::at(lease, now, row.renewable_until, row.revoked_at.is_some()))
    }

    /// Returns the lease if a trusted key signed it.
    async fn verify(&self, store: &Store, text: &str) -> Result<Option<Lease>, DbErr> {
        let known = self.verified.lock().unwrap_or_else(PoisonError::into_inner).get(text).cloned();
        let is_known = known.is_some();
        let Some(lease) = known.or_else(|| Lease::read(text).ok()) else { return Ok(None) };
        if !self.trusts(store, &lease.key).await? {
            return Ok(None);
        }
        if is_known {
            return Ok(Some(lease));
        }
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.len() >= MAX_VERIFIED {
            verified.clear();
        }
        verified.insert(text.to_owned(), lease.clone());
        Ok(Some(lease))
    }

    async fn trusts(&self, store: &Store, key: &str) -> Result<bool, DbErr> {
        let trusted = || self.trusted.lock().unwrap_or_else(PoisonError::into_inner);
        if key == self.own_key || trusted().get(key).is_some_and(|at| at.elapsed() < TRUST_KEY_FOR) {
            return Ok(true);
        }
        // The key of another gateway on the same store, which may have been retired since.
        let found = lease_key::Entity::find_by_id(key).one(store.read()).await?;
        match found {
            Some(_) => trusted().insert(key.to_owned(), Instant::now()),
            None => trusted().remove(key),
        };
        Ok(found.is_some())
    }
}

/// Deletes leases that ended long ago. The audit still names them.
pub async fn delete_ended(store: &Store, before: i64) -> Result<(), DbErr> {
    let write = store.write().await?;
    lease::Entity::delete_many().filter(lease::Column::RenewableUntil.lt(before)).exec(&*write).await?;
    write.commit().await
}
