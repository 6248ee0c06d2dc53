//! Lesson sessions and their study times: what one is, and how it is created in one transaction.
//!
//! Owns both tables. The unique key of `lesson_sessions` is the arbiter: of two that both found nothing, one is told of its
//! violation after the other has committed. Nothing at all is written then. Fails with [`StoreError`].

use casework::store::{DatabaseUrl, SideTables, StoreError};

use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::{ExpressionMethods as _, QueryDsl as _, QueryResult, SqliteConnection};
use diesel_async::{AsyncConnection as _, AsyncPgConnection};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

diesel::table! {
    lesson_sessions (uuid) {
        uuid -> Text,
        course -> Text,
    }
}

diesel::table! {
    study_times (id) {
        id -> BigInt,
        lesson_session -> Text,
        minutes -> Integer,
    }
}

const TABLES_SQLITE: &str = "
    CREATE TABLE IF NOT EXISTS lesson_sessions (uuid text NOT NULL PRIMARY KEY, course text NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS study_times (
        id integer PRIMARY KEY, lesson_session text NOT NULL REFERENCES lesson_sessions (uuid), minutes integer NOT NULL
    ) STRICT;";
const TABLES_POSTGRES: &str = "
    CREATE TABLE IF NOT EXISTS lesson_sessions (uuid text PRIMARY KEY, course text NOT NULL);
    CREATE TABLE IF NOT EXISTS study_times (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        lesson_session text NOT NULL REFERENCES lesson_sessions (uuid), minutes integer NOT NULL
    );";

/// In characters.
const COURSE_MAX: usize = 200;
/// In minutes: a day.
const MINUTES_MAX: i32 = 24 * 60;

/// What a client sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LessonSession {
    /// Made by the client; as text in lower case with hyphens.
    pub uuid: String,
    /// Its name.
    pub course: String,
    /// Studied.
    pub minutes: i32,
}

/// Why it is none.
#[derive(Debug)]
pub enum Refused {
    /// The parser's words.
    NoJson(String),
    /// Which members are wrong.
    NoSession(Vec<FieldError>),
}

/// What is wrong with a member.
#[derive(Debug, Serialize)]
pub struct FieldError {
    /// A JSON pointer.
    pointer: &'static str,
    detail: String,
}

impl LessonSession {
    /// Reads and checks a request's body.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn parse(body: &[u8]) -> Result<Self, Refused> {
        let value: serde_json::Value =
            serde_json::from_slice(body).map_err(|error| Refused::NoJson(error.to_string()))?;
        let wrong = |pointer, detail: &str| FieldError { pointer, detail: detail.to_owned() };
        let parsed: Result<Self, _> = serde_json::from_value(value);
        let mut session = parsed.map_err(|error| Refused::NoSession(vec![wrong("", &error.to_string())]))?;
        let mut errors = Vec::new();
        match Uuid::try_parse(&session.uuid) {
            // One spelling, or the key would see two ids in one.
            Ok(uuid) if !uuid.is_nil() => session.uuid = uuid.hyphenated().to_string(),
            _ => errors.push(wrong("/uuid", "a UUID that is not nil is needed")),
        }
        let course = &session.course;
        if course.trim().is_empty() || course.chars().count() > COURSE_MAX || course.contains(char::is_control) {
            errors.push(wrong("/course", "1 to 200 characters are needed, not only white space, none of them control"));
        }
        if !(1..=MINUTES_MAX).contains(&session.minutes) {
            errors.push(wrong("/minutes", "a number from 1 to 1440 is needed"));
        }
        if errors.is_empty() { Ok(session) } else { Err(Refused::NoSession(errors)) }
    }
}

/// What became of a creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// Both rows were written.
    New,
    /// It was found.
    AlreadyThere,
    /// It was not found, and was there all the same when it was to be written.
    UniqueViolation,
}

/// The two tables.
pub struct Sessions(SideTables);

impl Sessions {
    /// Opens the database and makes the tables where they are not there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn open(database: &DatabaseUrl) -> Result<Self, StoreError> {
        let tables = SideTables::open(database)?;
        tables.create(TABLES_SQLITE, TABLES_POSTGRES).await?;
        Ok(Self(tables))
    }

    /// Creates a session and its study time, unless the session is there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn create(&self, session: &LessonSession) -> Result<Created, StoreError> {
        let (here, there) = (session.clone(), session.clone());
        self.0
            .run(
                "creating a lesson session",
                move |connection| violation_is_an_answer(create_sqlite(connection, &here)),
                move |connection| {
                    Box::pin(async move { violation_is_an_answer(create_postgres(connection, there).await) })
                },
            )
            .await
    }
}

/// The transaction is over by now: on PostgreSQL nothing can be read in one that was violated.
fn violation_is_an_answer(created: QueryResult<Created>) -> QueryResult<Created> {
    match created {
        Err(DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _)) => Ok(Created::UniqueViolation),
        other => other,
    }
}

/// `BEGIN IMMEDIATE`: a transaction that reads first and writes then would be refused when another one wrote in between.
fn create_sqlite(connection: &mut SqliteConnection, session: &LessonSession) -> QueryResult<Created> {
    use diesel::RunQueryDsl;

    connection.immediate_transaction(|connection| {
        let found = lesson_sessions::table.find(&session.uuid).count().get_result::<i64>(connection)?;
        if found > 0 {
            return Ok(Created::AlreadyThere);
        }
        let row = (lesson_sessions::uuid.eq(&session.uuid), lesson_sessions::course.eq(&session.course));
        diesel::insert_into(lesson_sessions::table).values(row).execute(connection)?;
        let row = (study_times::lesson_session.eq(&session.uuid), study_times::minutes.eq(session.minutes));
        diesel::insert_into(study_times::table).values(row).execute(connection)?;
        Ok(Created::New)
    })
}

/// READ COMMITTED: of two that found nothing, the second one's INSERT waits for the first one's end, and is then violated.
async fn create_postgres(connection: &mut AsyncPgConnection, session: LessonSession) -> QueryResult<Created> {
    use diesel_async::RunQueryDsl;

    let work = async |connection: &mut AsyncPgConnection| {
        let found: Vec<i64> = lesson_sessions::table.find(&session.uuid).count().load(connection).await?;
        if found != [0] {
            return Ok(Created::AlreadyThere);
        }
        let row = (lesson_sessions::uuid.eq(&session.uuid), lesson_sessions::course.eq(&session.course));
        diesel::insert_into(lesson_sessions::table).values(row).execute(connection).await?;
        let row = (study_times::lesson_session.eq(&session.uuid), study_times::minutes.eq(session.minutes));
        diesel::insert_into(study_times::table).values(row).execute(connection).await?;
        Ok(Created::New)
    };
    connection.transaction(work).await
}
